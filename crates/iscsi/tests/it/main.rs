//! The iSCSI front end over real connections, with units in RAM.

mod chap;
mod data;
mod hostile;
mod libiscsi;
mod qemu;
mod support;
mod wire;
