//! Windows in which changes may begin: cron, a duration and a time zone.

use cronexpr::Crontab;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use olm_api::change_policy::WindowSpec;

/// The longest window.
const MAX_DURATION: SignedDuration = SignedDuration::from_hours(168);

/// The reason why a window cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// The schedule is invalid.
    #[error(
        "schedule {schedule:?} is invalid: {message}; write minute, hour, day of the month, month and day of the week"
    )]
    Schedule {
        /// The schedule.
        schedule: String,
        /// The fault.
        message: String,
    },
    /// The time zone is unknown.
    #[error("time zone {0:?} is unknown; write an IANA name such as Europe/Berlin")]
    TimeZone(String),
    /// The duration is invalid.
    #[error("duration {0:?} is invalid; write hours and minutes up to 168h, such as 4h or 1h30m")]
    Duration(String),
}

/// A recurring window.
#[derive(Debug, Clone)]
pub struct Window {
    /// The schedule in the time zone. A local time that occurs twice counts twice.
    schedule: Crontab,
    /// The same schedule as if in UTC, to find local times that the clock skips.
    skipped: Crontab,
    zone: TimeZone,
    duration: SignedDuration,
}

impl Window {
    /// Reads a window.
    ///
    /// # Errors
    /// A part of it is invalid.
    pub fn parse(spec: &WindowSpec) -> Result<Self, WindowError> {
        let zone = TimeZone::get(&spec.time_zone);
        let zone = zone.map_err(|_| WindowError::TimeZone(spec.time_zone.clone()))?;
        let fields: Vec<&str> = spec.schedule.split_whitespace().collect();
        let invalid = |message: String| WindowError::Schedule {
            schedule: spec.schedule.clone(),
            message,
        };
        if fields.len() != 5 {
            return Err(invalid(format!("it has {} fields", fields.len())));
        }
        let fields = fields.join(" ");
        let read = |zone: &str| {
            let error = |error: cronexpr::Error| {
                let text = error.to_string();
                invalid(text.lines().last().unwrap_or_default().trim().to_owned())
            };
            cronexpr::parse_crontab(&format!("{fields} {zone}")).map_err(error)
        };
        let duration = duration(&spec.duration);
        Ok(Self {
            schedule: read(&spec.time_zone)?,
            skipped: read("UTC")?,
            zone,
            duration: duration.ok_or_else(|| WindowError::Duration(spec.duration.clone()))?,
        })
    }

    /// Whether the window is open: from a time of the schedule until the duration has passed.
    pub fn is_open(&self, now: Timestamp) -> bool {
        let earliest = now - self.duration;
        self.opens(earliest).is_some_and(|opens| opens <= now)
    }

    /// The next time when it opens after `now`; `None` if it never opens again.
    pub fn opens(&self, now: Timestamp) -> Option<Timestamp> {
        let regular = self.schedule.find_next(now).ok().map(|at| at.timestamp());
        let until = regular.unwrap_or(Timestamp::MAX);
        // A clock never moves forward by more than a day.
        let transitions = self.zone.following(now - SignedDuration::from_hours(24)).take(8);
        // A skipped time opens the window later by as much as the clock moves forward.
        let mut shifted = transitions
            .map(|transition| transition.timestamp())
            .take_while(|at| *at < until)
            .filter_map(|at| self.in_gap(at));
        let shifted = shifted.find(|at| *at > now);
        [regular, shifted].into_iter().flatten().min()
    }

    /// The first time of the schedule that the clock skips when it moves forward at `at`, moved behind the gap.
    fn in_gap(&self, at: Timestamp) -> Option<Timestamp> {
        let before = self.zone.to_offset(at - SignedDuration::from_secs(1));
        let after = self.zone.to_offset(at);
        let clock = |offset: Offset| Some(at + SignedDuration::from_secs(offset.seconds().into()));
        let (begin, end) = (clock(before)?, clock(after)?);
        let minute = SignedDuration::from_mins(1);
        let skipped = self.skipped.find_next(begin - minute).ok()?.timestamp();
        (begin <= skipped && skipped < end).then(|| at + skipped.duration_since(begin))
    }
}

/// Hours and minutes.
fn duration(text: &str) -> Option<SignedDuration> {
    let (hours, rest) = match text.split_once('h') {
        Some((hours, rest)) => (hours.parse::<u32>().ok()?, rest),
        None => (0, text),
    };
    let minutes = match rest.strip_suffix('m') {
        Some(minutes) => minutes.parse::<u32>().ok()?,
        None if rest.is_empty() => 0,
        None => return None,
    };
    let hours = SignedDuration::from_hours(hours.into());
    let total = hours.checked_add(SignedDuration::from_mins(minutes.into()))?;
    (total.is_positive() && total <= MAX_DURATION).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(schedule: &str, duration: &str, zone: &str) -> WindowSpec {
        WindowSpec {
            schedule: schedule.to_owned(),
            duration: duration.to_owned(),
            time_zone: zone.to_owned(),
        }
    }

    #[track_caller]
    fn check(schedule: &str, duration: &str, zone: &str, now: &str, is_open: bool, opens: &str) {
        let window = Window::parse(&spec(schedule, duration, zone)).unwrap();
        let now: Timestamp = now.parse().unwrap();
        let next = window.opens(now).map(|at| at.to_string());
        assert_eq!((window.is_open(now), next.as_deref()), (is_open, Some(opens)));
    }

    #[test]
    fn a_window_is_open_from_its_time_on_until_its_duration_is_over() {
        let saturday =
            |now, is_open, opens| check("0 22 * * SAT", "4h", "Europe/Berlin", now, is_open, opens);
        saturday("2026-11-21T20:59:59Z", false, "2026-11-21T21:00:00Z");
        saturday("2026-11-21T21:00:00Z", true, "2026-11-28T21:00:00Z");
        saturday("2026-11-22T00:59:59Z", true, "2026-11-28T21:00:00Z");
        saturday("2026-11-22T01:00:00Z", false, "2026-11-28T21:00:00Z");
        check(
            "30 1 1 * *",
            "90m",
            "UTC",
            "2026-11-22T00:00:00Z",
            false,
            "2026-12-01T01:30:00Z",
        );
    }

    #[test]
    fn a_time_that_the_clock_skips_opens_the_window_as_much_later() {
        // In Berlin the clock goes from 2:00 to 3:00 on 29 March 2026, at 1:00 UTC.
        let night = |now, is_open, opens| check("30 2 * * *", "1h", "Europe/Berlin", now, is_open, opens);
        night("2026-03-28T12:00:00Z", false, "2026-03-29T01:30:00Z");
        night("2026-03-29T01:29:00Z", false, "2026-03-29T01:30:00Z");
        night("2026-03-29T01:30:00Z", true, "2026-03-30T00:30:00Z");
        night("2026-03-29T02:29:00Z", true, "2026-03-30T00:30:00Z");
        night("2026-03-29T02:30:00Z", false, "2026-03-30T00:30:00Z");
        // A skipped time that comes once a year still opens the window.
        check(
            "30 2 29 3 *",
            "1h",
            "Europe/Berlin",
            "2026-01-01T00:00:00Z",
            false,
            "2026-03-29T01:30:00Z",
        );
    }

    #[test]
    fn a_time_that_the_clock_shows_twice_opens_the_window_twice() {
        // In Berlin the clock goes from 3:00 to 2:00 on 25 October 2026, at 1:00 UTC.
        let night = |now, is_open, opens| check("30 2 * * *", "20m", "Europe/Berlin", now, is_open, opens);
        night("2026-10-24T12:00:00Z", false, "2026-10-25T00:30:00Z");
        night("2026-10-25T00:30:00Z", true, "2026-10-25T01:30:00Z");
        night("2026-10-25T00:50:00Z", false, "2026-10-25T01:30:00Z");
        night("2026-10-25T01:30:00Z", true, "2026-10-26T01:30:00Z");
    }

    #[test]
    fn a_window_over_a_change_of_the_clock_lasts_as_long_as_it_says() {
        let night = |now, is_open, opens| check("0 1 * * SUN", "3h", "Europe/Berlin", now, is_open, opens);
        night("2026-03-29T02:59:00Z", true, "2026-04-04T23:00:00Z");
        night("2026-03-29T03:00:00Z", false, "2026-04-04T23:00:00Z");
    }

    #[test]
    fn an_invalid_window_names_the_faulty_part_and_an_example() {
        let refused = |schedule: &str, duration: &str, zone: &str| {
            Window::parse(&spec(schedule, duration, zone))
                .unwrap_err()
                .to_string()
        };
        for (text, part) in [
            (refused("0 22 * *", "1h", "UTC"), "it has 4 fields"),
            (
                refused("0 25 * * *", "1h", "UTC"),
                "schedule \"0 25 * * *\" is invalid",
            ),
            (refused("0 22 * * *", "0m", "UTC"), "duration \"0m\" is invalid"),
            (
                refused("0 22 * * *", "169h", "UTC"),
                "duration \"169h\" is invalid",
            ),
            (refused("0 22 * * *", "99999999999h", "UTC"), "duration"),
            (
                refused("0 22 * * *", "1h", "Europe/Atlantis"),
                "time zone \"Europe/Atlantis\" is unknown",
            ),
        ] {
            assert!(text.contains(part), "{text}");
        }
        let never = Window::parse(&spec("0 0 30 2 *", "1h", "UTC")).unwrap();
        assert_eq!(never.opens(Timestamp::UNIX_EPOCH), None);
        assert!(!never.is_open(Timestamp::UNIX_EPOCH));
    }
}
