//! The NBD front end over real connections, with volumes in RAM; and its parsers with any bytes.

mod parsers;
mod support;
mod tls;
mod tools;
mod wire;
