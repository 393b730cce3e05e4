//! The management interface over real arrays, by HTTP.

mod audit;
mod connections;
mod lab;
mod resources;
mod rest;
