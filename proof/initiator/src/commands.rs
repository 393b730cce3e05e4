//! Commands that make the target do what a host would otherwise read and write: EXTENDED COPY and WRITE SAME.

use std::collections::VecDeque;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::connection::{Connection, Sense};
use crate::pdu::{Event, opcode};

/// DESIGNATOR TYPE of an NAA identifier (SPC-4 §7.8.6).
const NAA: u8 = 3;

/// A command with the parameters it carries, which returns nothing but its status.
#[derive(Debug, Clone)]
pub struct Command {
    cdb: [u8; 16],
    data: Vec<u8>,
}

impl AsRef<[u8]> for Command {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Command {
    /// EXTENDED COPY of so many blocks between units with these NAA identifiers (SPC-4 §6.4).
    pub fn extended_copy(from: (&[u8], u64), to: (&[u8], u64), blocks: u16) -> Command {
        let mut targets = Vec::new();
        for naa in [from.0, to.0] {
            targets.extend([0xe4, 0, 0, 0, 1, NAA, 0, naa.len() as u8]);
            targets.extend(naa);
            targets.resize(targets.len().next_multiple_of(32), 0);
        }
        let mut segment = vec![0x02, 0, 0, 24, 0, 0, 0, 1, 0, 0];
        segment.extend(blocks.to_be_bytes());
        segment.extend(from.1.to_be_bytes());
        segment.extend(to.1.to_be_bytes());
        // LIST ID USAGE 11b: the host does not ask for the status.
        let mut data = vec![0, 0x18];
        data.extend((targets.len() as u16).to_be_bytes());
        data.extend([0; 4]);
        data.extend((segment.len() as u32).to_be_bytes());
        data.extend([0; 4]);
        data.extend(targets);
        data.extend(segment);
        let mut cdb = [0; 16];
        cdb[0] = 0x83;
        cdb[10..14].copy_from_slice(&(data.len() as u32).to_be_bytes());
        Command { cdb, data }
    }

    /// WRITE SAME (16) of zeroes, with UNMAP (SBC-3 §5.43).
    pub fn write_zeroes(lba: u64, blocks: u32, block_bytes: u32) -> Command {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (0x93, 0x08);
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        Command { cdb, data: vec![0; block_bytes as usize] }
    }
}

impl Connection {
    /// The unit's NAA identifier, as page 83h of vital product data tells it.
    pub fn naa(&mut self) -> Result<Vec<u8>> {
        let mut cdb = [0; 16];
        cdb[..5].copy_from_slice(&[0x12, 1, 0x83, 1, 0]);
        let page = self.command(cdb, 256)?.map_err(|sense| anyhow!("INQUIRY of page 83h: {sense}"))?;
        let mut rest = page.get(4..).unwrap_or_default();
        while let [_, kind, _, len, after @ ..] = rest {
            let designator = after.get(..usize::from(*len)).context("page 83h is cut short")?;
            if kind & 0x0f == NAA {
                return Ok(designator.to_vec());
            }
            rest = &after[designator.len()..];
        }
        bail!("the unit has no NAA identifier")
    }

    /// Has the target do these commands, so many at a time.
    pub fn run_commands(&mut self, commands: Vec<Command>, depth: usize) -> Result<()> {
        let mut waiting: VecDeque<usize> = (0..commands.len()).collect();
        let (mut in_flight, mut done, mut sense) = (0, 0, Vec::new());
        while done < commands.len() {
            while in_flight < depth
                && self.sender.window_is_open()
                && let Some(tag) = waiting.pop_front()
            {
                let Command { cdb, data } = &commands[tag];
                self.sender.push_command(tag, *cdb, data.len() as u32, Some(tag));
                in_flight += 1;
            }
            self.flush(&commands)?;
            if !self.wait_for_input(None)? {
                continue;
            }
            self.receive(|sender, header, event| {
                match (header.opcode(), event) {
                    (opcode::R2T, Event::End) => sender.push_data_out(header),
                    (opcode::RESPONSE, Event::Data { bytes, .. }) => sense.extend_from_slice(bytes),
                    (opcode::RESPONSE, Event::End) => {
                        in_flight -= 1;
                        let sense = Sense::of(header, &std::mem::take(&mut sense));
                        if sense.is_unit_attention() || sense.is_task_set_full() {
                            waiting.push_back(header.itt() as usize);
                            return Ok(());
                        }
                        ensure!(header.0[2] == 0 && header.0[3] == 0, "the target failed a command: {sense}");
                        done += 1;
                    }
                    _ => bail!("the target sent {header:?} for a command that returns nothing"),
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_for_extended_copy_names_both_units_and_the_segment() {
        let command = Command::extended_copy((&[6; 16], 7), (&[9; 16], 8), 0x102);
        assert_eq!((command.cdb[0], command.cdb[13], command.data.len()), (0x83, 16 + 64 + 28, 108));
        assert_eq!(command.data[..12], [0, 0x18, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28]);
        assert_eq!(command.data[48..56], [0xe4, 0, 0, 0, 1, 3, 0, 16]);
        assert_eq!(command.data[80..92], [2, 0, 0, 24, 0, 0, 0, 1, 0, 0, 1, 2]);
        assert_eq!((command.data[99], command.data[107]), (7, 8));
    }

    #[test]
    fn a_command_for_zeroes_carries_one_block() {
        let Command { cdb, data } = Command::write_zeroes(1 << 32, 8, 4096);
        assert_eq!(cdb[..14], [0x93, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8]);
        assert_eq!(data.len(), 4096);
    }
}
