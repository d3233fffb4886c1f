//! [`Fresh`]: an answer of the API server that is used again for a while.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A value that is read again once it is older than `age`. While it is read, other callers wait for it.
#[derive(Debug)]
pub struct Fresh<T> {
    age: Duration,
    kept: Mutex<Kept<T>>,
    /// Held by the caller that reads; the end of the last read that failed.
    reading: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Kept<T> {
    /// The value, with the time at which its read began.
    value: Option<(Instant, T)>,
    /// What was read from before this time is not kept.
    forgotten: Option<Instant>,
}

impl<T: Clone> Fresh<T> {
    /// Nothing read yet.
    pub fn new(age: Duration) -> Self {
        let kept = Kept {
            value: None,
            forgotten: None,
        };
        Self {
            age,
            kept: Mutex::new(kept),
            reading: tokio::sync::Mutex::new(None),
        }
    }

    /// The kept value, if it is young enough, else what `read` returns. Its age counts from before the read.
    ///
    /// # Errors
    /// Those of `read`. An error is not kept, and the earlier value stays for [`Fresh::last`]. Callers that waited for
    /// a read that fails do not wait for each other: each reads at once.
    pub async fn get_or<E>(&self, read: impl AsyncFnOnce() -> Result<T, E>) -> Result<T, E> {
        let asked = Instant::now();
        if let Some(value) = self.young() {
            return Ok(value);
        }
        let mut failed = self.reading.lock().await;
        if let Some(value) = self.young() {
            return Ok(value);
        }
        if failed.is_some_and(|at| at >= asked) {
            // While the API server hangs, reads in turn would add up.
            drop(failed);
            return self.read(read).await;
        }
        let answer = self.read(read).await;
        if answer.is_err() {
            *failed = Some(Instant::now());
        }
        answer
    }

    async fn read<E>(&self, read: impl AsyncFnOnce() -> Result<T, E>) -> Result<T, E> {
        let begun = Instant::now();
        let value = read().await?;
        let mut kept = self.kept.lock();
        if kept.forgotten.is_none_or(|at| at <= begun) {
            kept.value = Some((begun, value.clone()));
        }
        Ok(value)
    }

    fn young(&self) -> Option<T> {
        let kept = self.kept.lock();
        let (begun, value) = kept.value.as_ref()?;
        (begun.elapsed() < self.age).then(|| value.clone())
    }

    /// The last value, of any age. Waits for no read.
    pub fn last(&self) -> Option<T> {
        self.kept.lock().value.as_ref().map(|(_, value)| value.clone())
    }

    /// Drops the value. The next caller reads.
    pub fn forget(&self) {
        let mut kept = self.kept.lock();
        kept.value = None;
        kept.forgotten = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_value_is_read_again_when_it_is_old_or_forgotten() {
        let fresh = Fresh::new(Duration::from_hours(1));
        assert_eq!(fresh.get_or(async || Ok::<_, ()>(1)).await, Ok(1));
        assert_eq!(fresh.get_or(async || Ok::<_, ()>(2)).await, Ok(1));
        fresh.forget();
        assert_eq!(fresh.last(), None);
        assert_eq!(fresh.get_or(async || Ok::<_, ()>(3)).await, Ok(3));

        let stale = Fresh::new(Duration::ZERO);
        assert_eq!(stale.get_or(async || Ok::<_, ()>(1)).await, Ok(1));
        assert_eq!(stale.get_or(async || Err("no answer")).await, Err("no answer"));
        assert_eq!(stale.last(), Some(1));
        assert_eq!(stale.get_or(async || Ok::<_, ()>(2)).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn callers_do_not_wait_in_turn_for_reads_that_fail() {
        let fresh = Fresh::new(Duration::from_hours(1));
        assert_eq!(fresh.get_or(async || Ok::<_, &str>(1)).await, Ok(1));
        fresh.forget();
        let hanging = async || {
            tokio::time::sleep(Duration::from_mins(5)).await;
            Err::<i32, _>("no answer")
        };
        let began = tokio::time::Instant::now();
        let answers = futures::future::join_all((0..10).map(|_| fresh.get_or(hanging))).await;
        assert!(answers.iter().all(|answer| *answer == Err("no answer")));
        assert_eq!(
            began.elapsed().as_secs(),
            600,
            "the first one, then the others together"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_was_asked_for_before_it_was_forgotten_is_not_kept() {
        let fresh = Fresh::new(Duration::from_hours(1));
        let slow = async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, ()>(1)
        };
        let forgotten = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            fresh.forget();
            fresh.get_or(async || Ok::<_, ()>(2)).await
        };
        let (before, after) = tokio::join!(fresh.get_or(slow), forgotten);
        assert_eq!((before, after), (Ok(1), Ok(2)));
        assert_eq!(fresh.last(), Some(2));
    }
}
