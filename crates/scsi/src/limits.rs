//! What one command may ask for. The block limits page advertises exactly these.

use quoin_base::{KIB, MIB};

/// Most bytes one READ, WRITE or comparing VERIFY moves (MAXIMUM TRANSFER LENGTH).
pub const TRANSFER_BYTES: u64 = 32 * MIB;
/// Transfer size that costs the array least per byte (OPTIMAL TRANSFER LENGTH).
pub const OPTIMAL_TRANSFER_BYTES: u64 = MIB;
/// The physical block that hosts are told of. It is no larger than operating systems and databases take: SQL Server refuses
/// disks with physical blocks of more than 4096 bytes.
pub const PHYSICAL_BLOCK_BYTES: u64 = 4 * KIB;
/// The block in which the array stores data: transfer and unmap granularity.
pub const STORED_BLOCK_BYTES: u64 = 8 * KIB;
/// Most bytes all descriptors of one UNMAP name together (MAXIMUM UNMAP LBA COUNT).
pub const UNMAP_BYTES: u64 = 512 * MIB;
/// Most descriptors in one UNMAP.
pub const UNMAP_DESCRIPTORS: u32 = 256;
/// Most bytes one WRITE SAME covers (MAXIMUM WRITE SAME LENGTH).
pub const WRITE_SAME_BYTES: u64 = 512 * MIB;
/// Most bytes one ORWRITE changes, and one COMPARE AND WRITE compares and writes.
pub const MODIFIED_BYTES: u64 = MIB;
/// Most blocks of one COMPARE AND WRITE (MAXIMUM COMPARE AND WRITE LENGTH): its CDB has no room for more.
pub const COMPARED_BLOCKS: u8 = 255;
/// Most bytes one WRITE ATOMIC writes (MAXIMUM ATOMIC TRANSFER LENGTH).
pub const ATOMIC_BYTES: u64 = 128 * KIB;
/// The set in which thresholds of used space are counted.
pub const THRESHOLD_SET_BYTES: u64 = MIB;
/// Longest parameter list taken with any command other than those that move blocks.
pub const PARAMETER_BYTES: u32 = 8 + 16 * UNMAP_DESCRIPTORS;
/// Most bytes a command about the unit returns, whatever its allocation length is: as much as 16 bits can ask for.
/// Commands with a longer allocation length return far less, except REPORT LUNS, which the target answers at once.
pub const RETURNED_PARAMETER_BYTES: u32 = 64 * KIB as u32;
// Both logical blocks, 512 and 4096 bytes, divide what is advertised.
const LONGEST_BLOCK_BYTES: u64 = 4096;
const _: () = assert!(TRANSFER_BYTES.is_multiple_of(LONGEST_BLOCK_BYTES));
const _: () = assert!(WRITE_SAME_BYTES.is_multiple_of(LONGEST_BLOCK_BYTES));
const _: () = assert!(UNMAP_BYTES.is_multiple_of(LONGEST_BLOCK_BYTES));
const _: () = assert!(COMPARED_BLOCKS as u64 * LONGEST_BLOCK_BYTES <= MODIFIED_BYTES);
const _: () = assert!(OPTIMAL_TRANSFER_BYTES.is_multiple_of(STORED_BLOCK_BYTES));

/// What READ CAPACITY (10), which has no allocation length, answers.
pub(crate) const READ_CAPACITY_10_BYTES: u32 = 8;
