//! Recognition of timestamps. They are read as text, and quoted when written.

/// Reads off the front of a text.
struct Cursor<'a>(&'a str);

impl Cursor<'_> {
    /// One to `most` digits, at least `least`.
    fn number(&mut self, least: usize, most: usize) -> Option<u32> {
        let length = self.0.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if length < least {
            return None;
        }
        let (digits, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        digits.parse().ok()
    }

    fn take(&mut self, wanted: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(wanted)?;
        Some(())
    }

    fn time_of_day(&mut self) -> Option<()> {
        let hour = self.number(1, 2)?;
        self.take(":")?;
        let minute = self.number(1, 2)?;
        self.take(":")?;
        let second = self.number(1, 2)?;
        if let Some(rest) = self.0.strip_prefix(['.', ',']) {
            let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            if digits.len() < rest.len() {
                self.0 = digits;
            }
        }
        (hour < 24 && minute < 60 && second < 60).then_some(())
    }

    fn zone(&mut self) -> Option<()> {
        if self.take("Z").is_some() {
            return Some(());
        }
        self.0 = self.0.strip_prefix(['+', '-'])?;
        let hours = self.number(2, 2)?;
        self.take(":")?;
        let minutes = self.number(2, 2)?;
        (hours <= 24 && minutes <= 60).then_some(())
    }
}

fn days(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        1..=12 => 31,
        _ => 0,
    }
}

fn parse(text: &str) -> Option<()> {
    let mut cursor = Cursor(text);
    let year = cursor.number(4, 4)?;
    cursor.take("-")?;
    let month = cursor.number(1, 2)?;
    cursor.take("-")?;
    let day = cursor.number(1, 2)?;
    if !(1..=days(year, month)).contains(&day) {
        return None;
    }
    if cursor.0.is_empty() {
        return Some(());
    }
    if cursor.take("T").is_some() || cursor.take("t").is_some() {
        cursor.time_of_day()?;
        cursor.zone()?;
    } else {
        cursor.take(" ")?;
        cursor.0 = cursor.0.trim_start_matches(' ');
        cursor.time_of_day()?;
    }
    cursor.0.is_empty().then_some(())
}

/// Whether `text` is a date, or a date and time with a zone, or with a blank and without a zone.
pub(crate) fn is_timestamp(text: &str) -> bool {
    parse(text).is_some()
}
