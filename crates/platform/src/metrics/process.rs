//! Metrics of the process itself.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Figures of the process, read from `/proc` at each scrape.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let resident = status_bytes("VmRSS:").map(ConstGauge::new);
        encode(
            &mut encoder,
            "process_resident_memory_bytes",
            "Resident memory in bytes",
            resident,
        )?;
        let open = open_descriptors().map(ConstGauge::new);
        encode(&mut encoder, "process_open_fds", "Open file descriptors", open)?;
        let spent = cpu_seconds().map(ConstCounter::new);
        encode(
            &mut encoder,
            "process_cpu_seconds",
            "User and system time in seconds",
            spent,
        )?;
        let begin = start_seconds().map(ConstGauge::new);
        encode(
            &mut encoder,
            "process_start_time_seconds",
            "When the process began, in seconds since 1970",
            begin,
        )
    }
}

/// Encodes one metric. A value that could not be read is omitted.
fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: Option<impl EncodeMetric>,
) -> fmt::Result {
    let Some(metric) = metric else { return Ok(()) };
    let descriptor = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(descriptor)
}

fn status_bytes(field: &str) -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix(field))?
        .split_whitespace()
        .next()?;
    kilobytes.parse::<i64>().ok()?.checked_mul(1024)
}

fn open_descriptors() -> Option<i64> {
    i64::try_from(std::fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

/// The kernel counts in hundredths of a second on every platform that Linux runs on today.
const TICKS: f64 = 100.0;

fn cpu_seconds() -> Option<f64> {
    let (user, system) = (stat_field(11)?, stat_field(12)?);
    Some((user + system) / TICKS)
}

fn start_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let booted = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(booted.trim().parse::<f64>().ok()? + stat_field(19)? / TICKS)
}

/// A number of `/proc/self/stat`, counted from the state.
fn stat_field(index: usize) -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is in parentheses and may contain any character, so count after its end.
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    fields.into_iter().nth(index)?.parse().ok()
}
