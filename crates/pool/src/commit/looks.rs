//! What the committer remembers of earlier looks at the log: what has grown old, and what the tail was.

use crate::commit::decide::Tail;
use quoin_base::Sequence;
use quoin_world::Nanos;
use std::{collections::VecDeque, time::Duration};

/// How often the next sequence is noted, to know what has grown old.
const AGES_APART: Duration = Duration::from_millis(250);
/// How often the journal's tail is looked for while the journal is filling up: that goes through the whole buffer.
const TAIL_LOOK_AFTER: Duration = Duration::from_millis(5);

/// Earlier looks at the log.
pub(crate) struct Looks {
    /// When which sequence was next.
    ages: VecDeque<(Nanos, Sequence)>,
    /// When the journal's tail was last looked for.
    tail_looked: Nanos,
    /// What a checkpoint would give back with the tail found then, if none was made since.
    tail_found: Option<Tail>,
}

impl Looks {
    pub(super) fn new(now: Nanos) -> Self {
        Self { ages: VecDeque::new(), tail_looked: now, tail_found: None }
    }

    /// The sequence that was next so long ago: all before has grown that old. `next` is the one that is next now.
    pub(super) fn older_than(&mut self, after: Duration, next: Sequence, now: Nanos) -> Option<Sequence> {
        if self.ages.back().is_none_or(|(at, s)| *s != next && now.since(*at) >= AGES_APART) {
            self.ages.push_back((now, next));
        }
        while self.ages.len() > 1 && now.since(self.ages[1].0) >= after {
            self.ages.pop_front();
        }
        self.ages.front().filter(|(since, _)| now.since(*since) >= after).map(|(_, sequence)| *sequence)
    }

    /// What was found last, or what `look` finds if that was long ago.
    pub(super) fn tail(&mut self, now: Nanos, look: impl FnOnce() -> Tail) -> Option<Tail> {
        if now.since(self.tail_looked) >= TAIL_LOOK_AFTER {
            self.tail_looked = now;
            self.tail_found = Some(look());
        }
        self.tail_found
    }

    /// Forgets the tail: a checkpoint was made.
    pub(super) fn forget_tail(&mut self) {
        self.tail_found = None;
    }
}
