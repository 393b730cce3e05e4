//! What all sessions of all front ends together hold in memory.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The budget of sessions, and what they hold of it: what they receive, the data of commands, and answers not sent yet.
///
/// It bounds what is begun, not what goes on: a session may always have one command, so that each gets on, and
/// waits with further ones while the budget is spent. The limit is exceeded by at most that.
#[derive(Debug)]
pub struct SessionMemory {
    limit_bytes: u64,
    held_bytes: AtomicU64,
}

/// What one session holds. Given back when dropped.
#[derive(Debug)]
pub struct SessionShare {
    memory: Arc<SessionMemory>,
    held_bytes: u64,
}

impl SessionMemory {
    /// A budget of `limit_bytes`, of which nothing is held.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { limit_bytes, held_bytes: AtomicU64::new(0) })
    }

    /// The share of a new session, which holds nothing yet.
    pub fn share(self: &Arc<Self>) -> SessionShare {
        SessionShare { memory: self.clone(), held_bytes: 0 }
    }

    /// What they may hold, but for one command each.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// What they hold.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }
}

impl SessionShare {
    /// Notes what the session holds now.
    pub fn hold(&mut self, bytes: u64) {
        if bytes != self.held_bytes {
            // The difference, which wraps around where the session holds less than before.
            let difference = bytes.wrapping_sub(self.held_bytes);
            let all = self.memory.held_bytes.fetch_add(difference, Ordering::Relaxed);
            assert!(all >= self.held_bytes, "session memory: one session holds more than all of them");
            self.held_bytes = bytes;
        }
    }

    /// True when `bytes` more are within the budget of all.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.memory.held_bytes() + bytes <= self.memory.limit_bytes
    }
}

impl Drop for SessionShare {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_share_the_budget_and_give_it_back() {
        let memory = SessionMemory::new(1000);
        let (mut one, mut two) = (memory.share(), memory.share());
        one.hold(700);
        assert!(two.has_room(300) && !two.has_room(301));
        two.hold(300);
        one.hold(100);
        assert_eq!(memory.held_bytes(), 400);
        assert!(two.has_room(600));
        drop(one);
        drop(two);
        assert_eq!(memory.held_bytes(), 0);
    }
}
