//! How data is protected over drives.

use std::{fmt, str::FromStr};
use thiserror::Error;

/// What a layout is to be, in columns on drives of distinct fault domains: `data` columns, and as many more as failures are to
/// be tolerated. With one data column the others are copies of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Layout {
    data: u8,
    parity: u8,
}

impl Layout {
    /// One copy: nothing is protected.
    pub const NONE: Self = Self { data: 1, parity: 0 };
    /// The most data columns.
    pub const MOST_DATA: u8 = 23;
    /// The most failures that a mirror tolerates.
    pub const MOST_COPIES: u8 = 3;
    /// The most failures that parity tolerates.
    pub const MOST_PARITY: u8 = 2;

    /// Of so many columns of data and of parity. `None` if there is no such layout: a mirror tolerates up to three failures, parity one or two, over 2 to 23 data columns.
    pub fn of_columns((data, parity): (u8, u8)) -> Option<Self> {
        let is_possible = match data {
            1 => parity <= Self::MOST_COPIES,
            2..=Self::MOST_DATA => (1..=Self::MOST_PARITY).contains(&parity),
            _ => false,
        };
        is_possible.then_some(Self { data, parity })
    }

    /// A mirror that tolerates so many failures; with none, one copy.
    pub fn mirror(failures: u8) -> Self {
        Self { data: 1, parity: failures.min(Self::MOST_COPIES) }
    }

    /// Columns that hold data.
    pub fn data(self) -> u8 {
        self.data
    }

    /// Failures that it tolerates: columns of parity, or copies beyond the first.
    pub fn parity(self) -> u8 {
        self.parity
    }

    /// Columns in all: so many fault domains it needs.
    pub fn columns(self) -> u8 {
        self.data + self.parity
    }

    /// The widest layout of its kind that so many fault domains allow. It tolerates as many failures, unless there are too few
    /// domains even for a mirror of one data column: then it tolerates as many as they allow.
    pub fn within(self, domains: usize) -> Self {
        let most = u8::try_from(domains).unwrap_or(u8::MAX).max(1);
        let parity = self.parity.min(most - 1);
        Self { data: self.data.min(most - parity), parity }
    }
}

impl Layout {
    /// The name, and what it means where the name alone does not say.
    pub fn described(self) -> String {
        match (self.data, self.parity) {
            (1, 0) => "none".to_owned(),
            (1, failures) => format!("{self} ({} copies)", failures + 1),
            (3, 1) | (4, 2) => format!("{self} ({}+{})", self.data, self.parity),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.data, self.parity) {
            (1, 0) => f.write_str("none"),
            (1, 1) => f.write_str("mirror"),
            (1, failures) => write!(f, "mirror-{}", failures + 1),
            (3, 1) => f.write_str("raid5"),
            (4, 2) => f.write_str("raid6"),
            (data, parity) => write!(f, "{data}+{parity}"),
        }
    }
}

/// A text that names no layout.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "{0:?} is no layout: say none, mirror, mirror-3, mirror-4, raid5 (3+1), raid6 (4+2), or data+parity columns such as 8+2, \
     with 2 to 23 columns of data and 1 or 2 of parity"
)]
pub struct NoLayout(pub String);

impl FromStr for Layout {
    type Err = NoLayout;

    fn from_str(text: &str) -> Result<Self, NoLayout> {
        let none = || NoLayout(text.to_owned());
        let (data, parity) = match text {
            "none" => (1, 0),
            "mirror" | "mirror-2" | "raid1" => (1, 1),
            "mirror-3" => (1, 2),
            "mirror-4" => (1, 3),
            "raid5" => (3, 1),
            "raid6" => (4, 2),
            _ => {
                let (data, parity) = text.split_once('+').ok_or_else(none)?;
                (data.parse().map_err(|_| none())?, parity.parse().map_err(|_| none())?)
            }
        };
        Self::of_columns((data, parity)).ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_is_read_as_it_is_written() {
        let mut layouts = 0;
        for data in 0..=255 {
            for parity in 0..=255 {
                let Some(layout) = Layout::of_columns((data, parity)) else { continue };
                assert_eq!(layout.to_string().parse(), Ok(layout));
                layouts += 1;
            }
        }
        assert_eq!(layouts, 4 + 22 * 2);
        for bad in ["", "raid0", "1+4", "24+2", "4+3", "2+0", "0+1", "4+", "mirror-5", "-1+1", "4 + 2"] {
            assert_eq!(bad.parse::<Layout>(), Err(NoLayout(bad.into())), "{bad}");
        }
    }

    #[test]
    fn with_fewer_domains_it_is_narrower_before_it_protects_less() {
        let within = |data, parity, domains| {
            let layout = Layout::of_columns((data, parity)).unwrap().within(domains);
            (layout.data(), layout.parity())
        };
        assert_eq!(
            [9, 6, 5, 4, 3, 2, 1, 0].map(|domains| within(4, 2, domains)),
            [(4, 2), (4, 2), (3, 2), (2, 2), (1, 2), (1, 1), (1, 0), (1, 0)]
        );
        assert_eq!([3, 2, 1].map(|domains| within(1, 1, domains)), [(1, 1), (1, 1), (1, 0)]);
    }
}
