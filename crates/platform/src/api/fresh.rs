//! [`Fresh`]: an answer of the API server that is used again for a while.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// A value that is read again once it is older than `age`. While it is read, other callers wait for it.
#[derive(Debug)]
pub struct Fresh<T> {
    age: Duration,
    kept: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Fresh<T> {
    /// Nothing read yet.
    pub fn new(age: Duration) -> Self {
        Self {
            age,
            kept: Mutex::new(None),
        }
    }

    /// The kept value, if it is young enough, else what `read` returns. Its age counts from before the read.
    ///
    /// # Errors
    /// Those of `read`. An error is not kept, and the earlier value stays for [`Fresh::last`].
    pub async fn get_or<E>(&self, read: impl AsyncFnOnce() -> Result<T, E>) -> Result<T, E> {
        let mut kept = self.kept.lock().await;
        if let Some((at, value)) = &*kept
            && at.elapsed() < self.age
        {
            return Ok(value.clone());
        }
        let begun = Instant::now();
        let value = read().await?;
        *kept = Some((begun, value.clone()));
        Ok(value)
    }

    /// The last value, of any age.
    pub async fn last(&self) -> Option<T> {
        self.kept.lock().await.as_ref().map(|(_, value)| value.clone())
    }

    /// Drops the value. The next caller reads.
    pub async fn forget(&self) {
        *self.kept.lock().await = None;
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
        fresh.forget().await;
        assert_eq!(fresh.last().await, None);
        assert_eq!(fresh.get_or(async || Ok::<_, ()>(3)).await, Ok(3));

        let stale = Fresh::new(Duration::ZERO);
        assert_eq!(stale.get_or(async || Ok::<_, ()>(1)).await, Ok(1));
        assert_eq!(stale.get_or(async || Err("no answer")).await, Err("no answer"));
        assert_eq!(stale.last().await, Some(1));
        assert_eq!(stale.get_or(async || Ok::<_, ()>(2)).await, Ok(2));
    }
}
