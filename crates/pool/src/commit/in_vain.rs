//! What cleaning gained, from one checkpoint to the next.

/// Whether cleaning gains nothing. If so, the slice can spare only slabs that are free or coming.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum InVain {
    /// It gained something, or was not tried since the last checkpoint.
    #[default]
    No,
    /// It gained nothing, but left segments out that it may clean after a checkpoint.
    ForNow,
    /// The same, and a checkpoint was cut since.
    Retry,
    /// It gained nothing, and a checkpoint does not change that.
    Yes,
}

impl InVain {
    /// After a step of cleaning.
    pub(super) fn cleaned(self, gained: bool, left_out: bool, is_under_way: bool) -> Self {
        match self {
            _ if gained => Self::No,
            // The checkpoint under way frees what the cleaner leaves alone meanwhile.
            _ if is_under_way => self,
            Self::Retry | Self::Yes => Self::Yes,
            Self::No | Self::ForNow if left_out => Self::ForNow,
            Self::No | Self::ForNow => Self::Yes,
        }
    }

    /// Whether another step may gain something: one that gains nothing ends that.
    pub(super) fn may_try(self, is_under_way: bool) -> bool {
        match self {
            Self::No => true,
            Self::Retry => !is_under_way,
            Self::ForNow | Self::Yes => false,
        }
    }

    /// When a checkpoint is cut.
    pub(super) fn cut(self) -> Self {
        if self == Self::ForNow { Self::Retry } else { self }
    }

    /// When it is durable.
    pub(super) fn landed(self) -> Self {
        if self == Self::Retry { self } else { Self::No }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_is_in_vain_when_a_checkpoint_does_not_change_that() {
        use InVain::{ForNow, No, Retry, Yes};
        // From, gained, left out, under way, to.
        let table = [
            (No, true, true, false, No),
            (No, false, false, false, Yes),
            (No, false, true, false, ForNow),
            (ForNow, false, true, false, ForNow),
            (ForNow, false, false, false, Yes),
            (Retry, false, true, false, Yes),
            (Retry, true, true, false, No),
            (Yes, true, false, false, No),
            // What is under way may be what keeps it from cleaning.
            (No, false, false, true, No),
            (Retry, false, true, true, Retry),
            (Yes, false, false, true, Yes),
        ];
        for (from, gained, left_out, is_under_way, to) in table {
            assert_eq!(from.cleaned(gained, left_out, is_under_way), to, "{from:?} {gained} {left_out}");
        }
        assert_eq!([No, ForNow, Retry, Yes].map(|kind| kind.may_try(false)), [true, false, true, false]);
        assert_eq!([No, ForNow, Retry, Yes].map(|kind| kind.may_try(true)), [true, false, false, false]);
        assert_eq!([No, ForNow, Retry, Yes].map(InVain::cut), [No, Retry, Retry, Yes]);
        assert_eq!([No, ForNow, Retry, Yes].map(InVain::landed), [No, No, Retry, No]);
    }
}
