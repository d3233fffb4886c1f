//! Summaries: quantiles of recent observations. The client library has none.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The age at which an observation stops counting for quantiles.
const AGE: Duration = Duration::from_mins(10);
/// The most observations of a series that count for quantiles.
const MOST: usize = 1000;
/// The quantiles, in per cent.
const QUANTILES: [(&str, usize); 3] = [("0.9", 90), ("0.95", 95), ("0.99", 99)];

/// A summary with one label; clones share it.
#[derive(Debug, Clone)]
pub struct Summary {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    series: Arc<Mutex<BTreeMap<&'static str, Series>>>,
}

#[derive(Debug, Default)]
struct Series {
    recent: VecDeque<(Instant, f64)>,
    sum: f64,
    count: u64,
}

impl Summary {
    /// A summary without observations.
    pub fn new(name: &'static str, help: &'static str, label: &'static str) -> Self {
        Self {
            name,
            help,
            label,
            series: Arc::default(),
        }
    }

    /// Adds an observation to the series whose label has this value.
    pub fn observe(&self, label: &'static str, value: f64, now: Instant) {
        let mut all = self.series.lock();
        let series = all.entry(label).or_default();
        if series.recent.len() >= MOST {
            series.recent.pop_front();
        }
        series.recent.push_back((now, value));
        series.sum += value;
        series.count = series.count.saturating_add(1);
    }

    /// Writes the metric, which has the same text in both formats.
    pub(super) fn write(&self, text: &mut String, now: Instant) -> fmt::Result {
        let (name, label) = (self.name, self.label);
        writeln!(text, "# HELP {name} {}.", self.help)?;
        writeln!(text, "# TYPE {name} summary")?;
        for (value, series) in self.series.lock().iter_mut() {
            series.recent.retain(|(at, _)| now.duration_since(*at) < AGE);
            let mut sorted: Vec<f64> = series.recent.iter().map(|(_, value)| *value).collect();
            sorted.sort_by(f64::total_cmp);
            for (quantile, per_cent) in QUANTILES {
                let rank = (sorted.len() * per_cent).div_ceil(100).saturating_sub(1);
                let found = sorted.get(rank).copied().unwrap_or(f64::NAN);
                writeln!(
                    text,
                    "{name}{{{label}=\"{value}\",quantile=\"{quantile}\"}} {found}"
                )?;
            }
            writeln!(text, "{name}_sum{{{label}=\"{value}\"}} {}", series.sum)?;
            writeln!(text, "{name}_count{{{label}=\"{value}\"}} {}", series.count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_last_ten_minutes_and_sums_those_of_all_time() {
        let (summary, start) = (Summary::new("took", "Time", "outcome"), Instant::now());
        for value in (1..=100).rev() {
            summary.observe("good", f64::from(value), start);
        }
        let lines = |minutes: u64| {
            let mut text = String::new();
            summary
                .write(&mut text, start + Duration::from_mins(minutes))
                .unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            lines(1),
            [
                "# HELP took Time.",
                "# TYPE took summary",
                "took{outcome=\"good\",quantile=\"0.9\"} 90",
                "took{outcome=\"good\",quantile=\"0.95\"} 95",
                "took{outcome=\"good\",quantile=\"0.99\"} 99",
                "took_sum{outcome=\"good\"} 5050",
                "took_count{outcome=\"good\"} 100",
            ]
        );
        let later = lines(11);
        assert_eq!(later[2], "took{outcome=\"good\",quantile=\"0.9\"} NaN");
        assert_eq!(later[6], "took_count{outcome=\"good\"} 100");
    }
}
