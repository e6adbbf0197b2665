//! What a benchmark found, for people and for scripts.

use anyhow::Result;
use hdrhistogram::Histogram;
use serde_json::{Map, Value};

use super::lanes::Carried;
use crate::table::Table;

/// One result: its key in JSON says the unit.
pub struct Figure {
    /// "p50_us", "gigabits_per_second", …
    pub key: &'static str,
    /// The number, in that unit.
    pub value: f64,
    /// The heading of the column.
    pub heading: &'static str,
}

/// What a benchmark found.
pub struct Measurement {
    /// The benchmark.
    pub bench: &'static str,
    /// What it was asked to do.
    pub parameters: Vec<(&'static str, Value)>,
    /// What came out.
    pub figures: Vec<Figure>,
    /// What carried the streams, if there were any.
    pub carried: Option<Carried>,
    /// Why the benchmark failed although it came to its end: lanes were expected, and there were none.
    pub failure: Option<String>,
}

/// Longest time that is told apart from longer ones: a minute.
const LONGEST: u64 = 60_000_000_000;

/// An empty histogram of nanoseconds.
pub fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LONGEST, 3)?)
}

/// The percentiles of a histogram of nanoseconds, in microseconds.
pub fn percentiles(histogram: &Histogram<u64>) -> Vec<Figure> {
    let figure = |key, heading, nanoseconds: f64| Figure {
        key,
        value: nanoseconds / 1000.0,
        heading,
    };
    let quantile = |q| histogram.value_at_quantile(q) as f64;
    vec![
        figure("p50_us", "P50 µs", quantile(0.5)),
        figure("p99_us", "P99 µs", quantile(0.99)),
        figure("p99_9_us", "P99.9 µs", quantile(0.999)),
        figure("mean_us", "MEAN µs", histogram.mean()),
    ]
}

/// One object for one measurement, an array for several.
pub fn json(measurements: &[Measurement]) -> String {
    let mut values: Vec<Value> = measurements.iter().map(object).collect();
    match values.as_mut_slice() {
        [] => String::new(),
        [value] => format!("{value:#}\n"),
        _ => format!("{:#}\n", Value::from(values)),
    }
}

fn object(measurement: &Measurement) -> Value {
    let mut object = Map::new();
    object.insert("bench".into(), measurement.bench.into());
    for (name, value) in &measurement.parameters {
        object.insert((*name).into(), value.clone());
    }
    for figure in &measurement.figures {
        object.insert(figure.key.into(), figure.value.into());
    }
    if let Some(carried) = &measurement.carried {
        object.insert("carrier".into(), carried.name().into());
        object.insert("streams_on_lane".into(), carried.on_lane.into());
        object.insert("lane_bytes".into(), carried.lane_bytes.into());
        object.insert("lane_share".into(), carried.share().into());
    }
    Value::Object(object)
}

/// A table for each group of measurements with the same columns.
pub fn text(measurements: &[Measurement]) -> String {
    let columns = |m: &Measurement| m.figures.iter().map(|f| f.heading).collect::<Vec<_>>();
    measurements
        .chunk_by(|a, b| columns(a) == columns(b))
        .map(table)
        .collect::<Vec<_>>()
        .join("\n")
}

fn table(group: &[Measurement]) -> String {
    let Some(first) = group.first() else {
        return String::new();
    };
    let figures: Vec<String> = first
        .figures
        .iter()
        .map(|figure| format!(">{}", figure.heading))
        .collect();
    let mut headings = vec!["BENCH", "PARAMETERS"];
    headings.extend(figures.iter().map(String::as_str));
    if first.carried.is_some() {
        headings.push("CARRIER");
    }
    let mut table = Table::new(&headings);
    for measurement in group {
        let parameters: Vec<String> = measurement
            .parameters
            .iter()
            .map(|(name, value)| match value {
                Value::String(text) => format!("{name}={text}"),
                other => format!("{name}={other}"),
            })
            .collect();
        let mut row = vec![measurement.bench.to_owned(), parameters.join(" ")];
        row.extend(measurement.figures.iter().map(|f| number(f.value)));
        row.extend(measurement.carried.as_ref().map(|c| c.name().to_owned()));
        table.row(row);
    }
    table.render("")
}

/// Three digits at least, no more decimals than that takes.
fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        1.0..10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
