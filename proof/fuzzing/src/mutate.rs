//! Changed inputs by number: what a fuzzer does, without one, the same every time.

/// Values that lengths, counts and offsets go wrong at.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
    u64::MAX - 1,
    4096,
];
/// Changed inputs are at most this long.
const LONGEST_BYTES: usize = 64 << 10;

/// Makes changed inputs out of given ones.
pub struct Mutations {
    state: u64,
    words: Vec<Vec<u8>>,
}

impl Mutations {
    /// From a seed, with byte strings to put in.
    pub fn new(seed: u64, words: Vec<Vec<u8>>) -> Self {
        Self { state: seed ^ 0x9e37_79b9_7f4a_7c15, words }
    }

    /// A number from 0 to `below`, which it is less than.
    fn next(&mut self, below: usize) -> usize {
        // splitmix64 by Sebastiano Vigna, as published in the public domain.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    }

    /// One of `inputs`, changed in one to six places.
    pub fn of(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = inputs[self.next(inputs.len())].clone();
        for _ in 0..=self.next(6) {
            self.change(&mut bytes, inputs);
        }
        bytes.truncate(LONGEST_BYTES);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, inputs: &[Vec<u8>]) {
        let at = self.next(bytes.len() + 1);
        let len = 1 + self.next(16);
        let end = (at + len).min(bytes.len());
        match self.next(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.next(8),
            1 if at < bytes.len() => bytes[at] = self.next(256) as u8,
            2 => {
                let edge = EDGES[self.next(EDGES.len())];
                let (little, big) = (edge.to_le_bytes(), edge.to_be_bytes());
                let width = [1, 2, 3, 4, 8][self.next(5)];
                let value = if self.next(2) == 0 { &little[..width] } else { &big[8 - width..] };
                bytes.iter_mut().skip(at).zip(value).for_each(|(byte, new)| *byte = *new);
            }
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copied = bytes[at..end].to_vec();
                let to = self.next(bytes.len() + 1);
                bytes.splice(to..to, copied);
            }
            5 if !self.words.is_empty() => {
                let word = self.next(self.words.len());
                let replaced =
                    if self.next(2) == 0 { at } else { (at + self.words[word].len()).min(bytes.len()) };
                bytes.splice(at..replaced, self.words[word].iter().copied());
            }
            6 => {
                let other = &inputs[self.next(inputs.len())];
                let from = self.next(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => bytes.truncate(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_they_differ() {
        let inputs = [b"some input".to_vec(), vec![7; 100]];
        let make = |seed| {
            let mut mutations = Mutations::new(seed, vec![b"word".to_vec()]);
            (0..200).map(|_| mutations.of(&inputs)).collect::<Vec<_>>()
        };
        let (first, again, other) = (make(1), make(1), make(2));
        assert_eq!(first, again);
        assert_ne!(first, other);
        let different: std::collections::BTreeSet<_> = first.iter().collect();
        assert!(different.len() > 100, "{}", different.len());
    }
}
