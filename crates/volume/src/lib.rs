//! Volumes: identity, size and the block device that front ends serve.

mod device;

pub use device::{BlockDevice, DeviceError};
