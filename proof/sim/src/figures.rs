//! What seeds exercised, in figures that are summed over seeds.

use std::fmt;

/// Figures of what was exercised.
pub trait Figures: Copy + Default + Send + fmt::Display {
    /// Adds another's.
    fn add(&mut self, other: &Self);

    /// How many seeds they are of.
    fn seeds(&self) -> u64;

    /// What was never exercised and should have been: the harness has lost its grip on it.
    fn missing(&self) -> Vec<&'static str>;
}

/// Makes a structure of counts, each with a name, and [`Figures`] of it. A modest number of seeds may leave those that
/// are `rare` at 0. Names that end in `_bytes` are of bytes.
#[macro_export]
macro_rules! figures {
    ($(#[$what:meta])* $vis:vis $type:ident, rare: [$($rare:ident),*], { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$what])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        $vis struct $type {
            $($(#[$doc])* $vis $name: u64,)*
        }

        impl $crate::Figures for $type {
            fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            fn seeds(&self) -> u64 {
                self.seeds
            }

            fn missing(&self) -> Vec<&'static str> {
                let rare: &[&str] = &[$(stringify!($rare)),*];
                let all = [$((stringify!($name), self.$name)),*];
                let zero = all.into_iter().filter(|(name, count)| *count == 0 && !rare.contains(name));
                zero.map(|(name, _)| name).collect()
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $($crate::write_figure(f, stringify!($name), self.$name)?;)*
                Ok(())
            }
        }
    };
}

/// Writes one figure on a line of its own.
///
/// # Errors
/// It cannot be written.
pub fn write_figure(f: &mut fmt::Formatter<'_>, name: &str, count: u64) -> fmt::Result {
    let spoken = |name: &str| name.replace('_', " ");
    match name.strip_suffix("_bytes") {
        Some(name) => writeln!(f, "  {:<24}{:>12.1} MiB", spoken(name), count as f64 / 1048576.0),
        None => writeln!(f, "  {:<24}{count:>12}", spoken(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::Figures;

    figures! {
        /// Of this test.
        Tried, rare: [torn], {
            /// Seeds.
            seeds,
            /// Read.
            read_bytes,
            /// Torn.
            torn,
        }
    }

    #[test]
    fn figures_add_up_and_tell_what_is_missing() {
        let mut all = Tried { seeds: 1, ..Tried::default() };
        assert_eq!(all.missing(), ["read_bytes"]);
        all.add(&Tried { seeds: 2, read_bytes: 3 << 20, torn: 1 });
        assert_eq!((all.seeds(), all.missing()), (3, Vec::new()));
        let told = all.to_string();
        assert!(told.contains("read ") && told.contains(" 3.0 MiB") && told.contains("torn"), "{told}");
    }
}
