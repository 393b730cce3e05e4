//! One logical unit for those who want to read and write it and nothing else.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::{Connection, Endpoint, Io, Next, Shape, Source, run};

/// Longer transfers are cut into pieces of this, several of them in flight.
const PIECE_BYTES: usize = 256 << 10;
const DEPTH: usize = 8;

/// A session to one logical unit.
pub struct Disk {
    connection: Connection,
    block_bytes: u32,
    bytes: u64,
    name: String,
}

impl Disk {
    /// Logs in; `number` tells sessions of this process apart.
    pub fn open(endpoint: &Endpoint, number: u16) -> Result<Disk> {
        let name = format!("LUN {} of {}", endpoint.lun, endpoint.portal);
        let mut connection = Connection::login(endpoint, number)?;
        let capacity = connection.capacity().with_context(|| name.clone())?;
        Ok(Disk { connection, block_bytes: capacity.block_bytes, bytes: capacity.bytes(), name })
    }

    /// Size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads so much from there.
    pub fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut data = vec![0; len];
        self.transfer(false, offset, &mut data).with_context(|| format!("reading {}", self.name))?;
        Ok(data)
    }

    /// Writes it there; every byte is durable on return.
    pub fn write(&mut self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.transfer(true, offset, data).with_context(|| format!("writing {}", self.name))
    }

    /// Logs out.
    pub fn close(self) -> Result<()> {
        self.connection.logout()
    }

    fn transfer(&mut self, write: bool, offset: u64, data: &mut [u8]) -> Result<()> {
        let block = u64::from(self.block_bytes);
        ensure!(
            offset.is_multiple_of(block) && (data.len() as u64).is_multiple_of(block),
            "{} bytes at {offset} are not whole blocks of {block}",
            data.len()
        );
        let shape = Shape {
            depth: data.len().div_ceil(PIECE_BYTES).clamp(1, DEPTH),
            largest_bytes: data.len().min(PIECE_BYTES),
            block_bytes: self.block_bytes,
            fua: false,
        };
        run(&mut self.connection, &mut Pieces { write, offset, data, begun: 0 }, shape)
    }
}

/// A transfer cut into pieces.
struct Pieces<'a> {
    write: bool,
    offset: u64,
    data: &'a mut [u8],
    begun: usize,
}

impl Pieces<'_> {
    fn range(&self, io: Io) -> std::ops::Range<usize> {
        let at = (io.offset - self.offset) as usize;
        at..at + io.len as usize
    }
}

impl Source for Pieces<'_> {
    fn wants_data(&self) -> bool {
        !self.write
    }

    fn next(&mut self, _: Instant) -> Next {
        let len = (self.data.len() - self.begun).min(PIECE_BYTES);
        if len == 0 {
            return Next::Done;
        }
        let io = Io { write: self.write, offset: self.offset + self.begun as u64, len: len as u32 };
        self.begun += len;
        Next::Start(io)
    }

    fn fill(&mut self, io: Io, data: &mut [u8]) {
        data.copy_from_slice(&self.data[self.range(io)]);
    }

    fn completed(&mut self, io: Io, data: &[u8], _: Instant, _: Instant) -> Result<()> {
        if !self.write {
            let range = self.range(io);
            self.data[range].copy_from_slice(data);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_transfer_once_and_land_where_they_belong() {
        let mut data = vec![0; 2 * PIECE_BYTES + 512];
        let mut pieces = Pieces { write: false, offset: 4096, data: &mut data, begun: 0 };
        let mut ios = Vec::new();
        while let Next::Start(io) = pieces.next(Instant::now()) {
            ios.push(io);
        }
        for (number, io) in ios.iter().enumerate().rev() {
            pieces
                .completed(*io, &vec![number as u8 + 1; io.len as usize], Instant::now(), Instant::now())
                .unwrap();
        }
        assert_eq!(ios.len(), 3);
        assert_eq!((data[0], data[PIECE_BYTES], data[2 * PIECE_BYTES]), (1, 2, 3));
        assert!(!data.contains(&0));
    }
}
