//! All runs, and the table of their results.

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use olm_test::faults::{Fault, Numbers};

use super::retire::{Progress, Retired};
use super::run::{Point, disturbed, undisturbed};
use super::stage::Stage;
use super::workloads::{ALL, Workload};

/// The points of a workload at which faults are tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    workload: &'static Workload,
    /// A crash before and one after every Nth call; 0: none.
    every: usize,
    /// The call that comes first.
    first: usize,
    survived: Survived,
    /// The number of seeds with several faults.
    seeds: u64,
}

/// The single faults that the manager survives.
#[derive(Debug, Clone, Copy)]
enum Survived {
    /// Each of them at the calls that have crashes.
    AtEachCall,
    /// So many, at calls by chance.
    Chosen(usize),
}

/// The selection without `FAULTS=all`: workload, the interval of calls, single faults, seeds.
const SELECTION: &[(&str, usize, usize, u64)] = &[
    ("install", 4, 2, 1),
    ("upgrade", 5, 2, 1),
    ("approval", 10, 1, 0),
    ("uninstall", 5, 1, 0),
    ("catalog-replace", 0, 1, 1),
];

/// Points at which a fault had once a lasting effect: workload, method and kind of the call, fault.
const FOUND: &[(&str, &str, &str, Fault)] = &[
    ("install", "POST", "clusterobjectsets", Fault::LostAnswer),
    ("install", "PATCH", "secrets", Fault::Answer(503)),
    ("upgrade", "DELETE", "operatorconditions", Fault::Answer(409)),
    ("upgrade", "DELETE", "operatorconditions", Fault::Answer(503)),
];

impl Share {
    /// The selection from the environment: `FAULTS`, `FAULTS_ONLY`, `FAULTS_EVERY` and `FAULTS_FROM`.
    pub(crate) fn chosen() -> Result<Vec<Self>> {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let mut shares: Vec<Self> = match variable("FAULTS").as_str() {
            "all" => ALL.iter().map(Self::whole).collect(),
            _ => SELECTION
                .iter()
                .map(|(name, every, survived, seeds)| {
                    Ok(Self {
                        workload: named(name)?,
                        every: *every,
                        first: 1,
                        survived: Survived::Chosen(*survived),
                        seeds: *seeds,
                    })
                })
                .collect::<Result<_>>()?,
        };
        let only = variable("FAULTS_ONLY");
        if !only.is_empty() {
            let chosen: Vec<&str> = only.split(',').collect();
            for name in &chosen {
                named(name)?;
            }
            shares.retain(|share| chosen.contains(&share.workload.name));
        }
        let every = variable("FAULTS_EVERY");
        if !every.is_empty() {
            let every = every.parse().context("FAULTS_EVERY is a number")?;
            for share in &mut shares {
                share.every = every;
            }
        }
        let from = variable("FAULTS_FROM");
        if !from.is_empty() {
            let (name, call) = from.split_once(':').context("FAULTS_FROM is WORKLOAD:CALL")?;
            let place = shares.iter().position(|share| share.workload.name == name);
            shares.drain(..place.with_context(|| format!("{name} is not tried"))?);
            if let Some(share) = shares.first_mut() {
                share.first = call.parse()?;
            }
        }
        ensure!(!shares.is_empty(), "nothing is tried");
        Ok(shares)
    }

    /// Every call, and more.
    fn whole(workload: &'static Workload) -> Self {
        Self {
            workload,
            every: 1,
            first: 1,
            survived: Survived::AtEachCall,
            seeds: 10,
        }
    }

    /// The points among so many calls.
    fn points(&self, calls: usize) -> Vec<Point> {
        let mut points = Vec::new();
        if self.every > 0 {
            for call in (self.first..=calls).step_by(self.every) {
                points.push(Point::At(call, Fault::CrashBefore));
                points.push(Point::At(call, Fault::CrashAfter));
                if let Survived::AtEachCall = self.survived {
                    points.extend(Fault::SURVIVED.iter().map(|fault| Point::At(call, *fault)));
                }
            }
        }
        if let Survived::Chosen(count) = self.survived {
            let mut numbers = Numbers::from_seed(self.workload.name.bytes().map(u64::from).sum());
            for (_, fault) in (0..count).zip(Fault::SURVIVED.iter().cycle()) {
                let below = numbers.below(u64::try_from(calls).unwrap_or_default());
                let call = usize::try_from(below).unwrap_or_default() + 1;
                points.push(Point::At(call, *fault));
            }
        }
        let found = FOUND.iter().filter(|(name, ..)| *name == self.workload.name);
        points.extend(found.map(|(_, method, resource, fault)| Point::First(method, resource, *fault)));
        points.extend((1..=self.seeds).map(Point::Seed));
        points
    }
}

fn named(name: &str) -> Result<&'static Workload> {
    let mut all = ALL.iter();
    all.find(|workload| workload.name == name)
        .with_context(|| format!("there is no workload {name:?}"))
}

/// The results of a workload.
struct Row {
    workload: &'static str,
    calls: usize,
    points: usize,
    /// The number of points at which the planned fault happened.
    reached: usize,
    failures: Vec<String>,
}

/// All runs.
pub(crate) struct Campaign {
    stage: Stage,
    rows: Vec<Row>,
    retired: VecDeque<Retired>,
    begun: Instant,
}

impl Campaign {
    pub(crate) fn new(stage: Stage) -> Self {
        Self {
            stage,
            rows: Vec::new(),
            retired: VecDeque::new(),
            begun: Instant::now(),
        }
    }

    /// Runs a workload undisturbed, then once for each point.
    pub(crate) async fn run(&mut self, share: &Share) -> Result<()> {
        let workload = share.workload;
        let (reference, done) = undisturbed(&mut self.stage, workload)
            .await
            .with_context(|| format!("{} without faults", workload.name))?;
        self.rows.push(Row {
            workload: workload.name,
            calls: reference.calls,
            points: 0,
            reached: 0,
            failures: Vec::new(),
        });
        self.say(&format!("{}: {} calls", workload.name, reference.calls))?;
        self.retire(workload, "without faults".to_owned(), done).await?;
        for point in share.points(reference.calls) {
            let begun = Instant::now();
            let done = disturbed(&mut self.stage, workload, &reference, point).await?;
            let is_met = done.met > 0;
            if let Some(row) = self.rows.last_mut() {
                row.points += 1;
                row.reached += usize::from(is_met);
            }
            let outcome = match (done.problems.is_empty(), is_met) {
                (true, true) => "ok",
                (true, false) => "ok, not reached",
                (false, _) => "FAILED",
            };
            self.say(&format!(
                "{} {point}: {outcome} ({:.1} s)",
                workload.name,
                begun.elapsed().as_secs_f64()
            ))?;
            self.retire(workload, point.to_string(), done).await?;
        }
        Ok(())
    }

    /// Ends the remaining runs.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.stage.calm();
        while let Some(mut retired) = self.retired.pop_front() {
            let problems = retired.end(&mut self.stage).await?;
            self.note(retired.workload, &retired.point, problems)?;
        }
        let rows: usize = self.rows.iter().map(|row| row.reached).sum();
        ensure!(rows > 0, "no fault happened");
        ensure!(self.stage.truth.checked() > 0, "no status was compared");
        Ok(())
    }

    async fn retire(
        &mut self,
        workload: &'static Workload,
        point: String,
        mut done: super::run::Done,
    ) -> Result<()> {
        let problems = std::mem::take(&mut done.problems);
        self.note(workload.name, &point, problems)?;
        self.retired.push_back(Retired::new(workload.name, point, done));
        for _ in 0..self.retired.len() {
            let Some(mut retired) = self.retired.pop_front() else {
                break;
            };
            match retired.go_on(&self.stage).await? {
                Progress::Waiting => self.retired.push_back(retired),
                Progress::Over(problems) => self.note(retired.workload, &retired.point, problems)?,
            }
        }
        Ok(())
    }

    fn note(&mut self, workload: &str, point: &str, problems: Vec<String>) -> Result<()> {
        if problems.is_empty() {
            return Ok(());
        }
        let failure = format!("{workload} {point}: {}", problems.join("\n"));
        self.say(&failure)?;
        let mut rows = self.rows.iter_mut().rev();
        if let Some(row) = rows.find(|row| row.workload == workload) {
            row.failures.push(failure);
        }
        Ok(())
    }

    fn say(&self, text: &str) -> Result<()> {
        let seconds = self.begun.elapsed().as_secs();
        Ok(writeln!(std::io::stdout(), "[{seconds:>5} s] {text}")?)
    }

    /// A row for each workload.
    pub(crate) fn table(&self) -> String {
        let mut lines = vec![
            "| workload | calls | points | faults that happened | failures |".to_owned(),
            "|---|---|---|---|---|".to_owned(),
        ];
        lines.extend(self.rows.iter().map(|row| {
            let failures = row.failures.len();
            format!(
                "| {} | {} | {} | {} | {failures} |",
                row.workload, row.calls, row.points, row.reached
            )
        }));
        let seconds = self.begun.elapsed().as_secs();
        let checked = self.stage.truth.checked();
        lines.push(format!(
            "\n{checked} statuses compared with the objects; {seconds} s"
        ));
        lines.join("\n")
    }

    pub(crate) fn failures(&self) -> Vec<&str> {
        let failures = self.rows.iter().flat_map(|row| &row.failures);
        failures.map(String::as_str).collect()
    }
}
