//! Group commit: threads that write at once share one transaction, and so one wait for the disk.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// What became of an item; the problem is text because every member of a group gets it.
type Outcome = Result<(), String>;

/// Collects items while one thread commits, and hands them to the next thread as one batch.
#[derive(Debug)]
pub(super) struct Group<T> {
    waiting: Mutex<Vec<(T, Arc<OnceLock<Outcome>>)>>,
    turn: Mutex<()>,
}

impl<T> Group<T> {
    pub(super) fn new() -> Self {
        Self {
            waiting: Mutex::new(Vec::new()),
            turn: Mutex::new(()),
        }
    }

    /// Commits the item, alone or with others; returns once a commit that holds it has ended.
    pub(super) fn submit(&self, item: T, commit: impl FnOnce(&[T]) -> Outcome) -> Outcome {
        let outcome = Arc::new(OnceLock::new());
        lock(&self.waiting).push((item, outcome.clone()));
        let _turn = lock(&self.turn);
        if let Some(outcome) = outcome.get() {
            return outcome.clone();
        }
        let batch = std::mem::take(&mut *lock(&self.waiting));
        let (items, outcomes): (Vec<T>, Vec<_>) = batch.into_iter().unzip();
        if !items.is_empty() {
            let result = commit(&items);
            for outcome in outcomes {
                // Each slot is set by the one commit that took its item.
                let _ = outcome.set(result.clone());
            }
        }
        // An item is gone without an outcome only where the thread that took it panicked.
        let lost = || Err(String::from("the thread that wrote it panicked"));
        outcome.get().cloned().unwrap_or_else(lost)
    }
}

/// A panic elsewhere cannot leave the guarded values half changed: each change is one push or take.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|held| held.into_inner())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Submits 0 from one thread, whose commit `first` does, and 1 to 8 while that is under way.
    fn submit_nine(first: impl FnOnce() -> Outcome + Send) -> (Vec<Outcome>, u32, Vec<u32>) {
        let group = Group::new();
        let commits = AtomicU32::new(0);
        let seen = Mutex::new(Vec::new());
        let (group, commits, seen_by) = (&group, &commits, &seen);
        let outcomes = std::thread::scope(|scope| {
            let leader = scope.spawn(move || {
                group.submit(0, |items| {
                    commits.fetch_add(1, Ordering::SeqCst);
                    lock(seen_by).extend_from_slice(items);
                    while lock(&group.waiting).len() < 8 {
                        std::thread::yield_now();
                    }
                    first()
                })
            });
            while lock(seen_by).is_empty() {
                std::thread::yield_now();
            }
            let others: Vec<_> = (1..=8)
                .map(|item| {
                    scope.spawn(move || {
                        group.submit(item, |items| {
                            commits.fetch_add(1, Ordering::SeqCst);
                            lock(seen_by).extend_from_slice(items);
                            Err(String::from("disk full"))
                        })
                    })
                })
                .collect();
            // A panic of the leader is that thread's own affair; the others must go on.
            let mut outcomes: Vec<Outcome> = leader.join().into_iter().collect();
            outcomes.extend(others.into_iter().map(|other| other.join().unwrap()));
            outcomes
        });
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_unstable();
        (outcomes, commits.load(Ordering::SeqCst), seen)
    }

    #[test]
    fn what_waits_together_is_committed_together_and_shares_the_outcome() {
        let (outcomes, commits, seen) = submit_nine(|| Ok(()));
        assert_eq!(commits, 2);
        assert_eq!(seen, (0..=8).collect::<Vec<_>>());
        assert_eq!(outcomes[0], Ok(()));
        for outcome in &outcomes[1..] {
            assert_eq!(*outcome, Err(String::from("disk full")));
        }
    }

    #[test]
    fn a_panic_while_committing_does_not_stop_the_others() {
        let (outcomes, commits, _) = submit_nine(|| panic!("on purpose"));
        assert_eq!(commits, 2);
        assert_eq!(outcomes, vec![Err(String::from("disk full")); 8]);
    }
}
