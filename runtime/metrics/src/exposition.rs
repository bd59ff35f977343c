//! Reads what a scrape says, strictly: whatever either format does not allow is an error. For programs that embed the runtime
//! and want a number, and for tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::Format;

/// A scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    /// The families, in their order.
    pub families: Vec<Family>,
}

/// A metric with all its series.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name, as its `TYPE` line has it.
    pub name: String,
    /// `counter`, `gauge`, `histogram`, `info`.
    pub kind: String,
    /// What it says.
    pub help: String,
    /// Its samples, in their order.
    pub samples: Vec<Sample>,
}

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name of the series.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Scrape {
    /// Reads a scrape.
    ///
    /// # Errors
    /// The line that is wrong, and what is wrong with it.
    pub fn parse(text: &str, format: Format) -> Result<Self, String> {
        let body = match format {
            Format::Prometheus => text,
            Format::OpenMetrics => text.strip_suffix("# EOF\n").ok_or("it does not end with # EOF")?,
        };
        if !body.is_empty() && !body.ends_with('\n') {
            return Err("its last line does not end".to_owned());
        }
        let mut scrape = Self::default();
        let mut seen = BTreeSet::new();
        for (line, number) in body.lines().zip(1..) {
            scrape.take(line, &mut seen).map_err(|error| format!("line {number}: {line:?}: {error}"))?;
        }
        scrape.families.iter().try_for_each(|family| family.check(format))?;
        Ok(scrape)
    }

    /// The value of one series, by its name and all its labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: BTreeMap<_, _> = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut samples = self.families.iter().flat_map(|family| &family.samples);
        samples.find(|sample| sample.name == name && sample.labels == labels).map(|sample| sample.value)
    }

    fn take(&mut self, line: &str, seen: &mut BTreeSet<String>) -> Result<(), String> {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or("a help text without a name")?;
            check_name(name)?;
            if self.families.iter().any(|family| family.name == name) {
                return Err("a second family of this name".to_owned());
            }
            let (name, help, kind) = (name.to_owned(), help.to_owned(), String::new());
            self.families.push(Family { name, kind, help, samples: Vec::new() });
            return Ok(());
        }
        let family = self.families.last_mut().ok_or("a line before the first family")?;
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("a type without a name")?;
            if name != family.name || !family.kind.is_empty() || !family.samples.is_empty() {
                return Err("a type that does not follow its help text".to_owned());
            }
            if !["counter", "gauge", "histogram", "info"].contains(&kind) {
                return Err("an unknown type".to_owned());
            }
            family.kind = kind.to_owned();
            return Ok(());
        }
        if line.starts_with('#') {
            return Err("a comment that says nothing".to_owned());
        }
        let (series, value) = line.rsplit_once(' ').ok_or("a sample without a value")?;
        if !seen.insert(series.to_owned()) {
            return Err("a second value for this series".to_owned());
        }
        let (name, labels) = read_series(series)?;
        let value = read_value(value)?;
        family.samples.push(Sample { name, labels, value });
        Ok(())
    }
}

impl Family {
    fn check(&self, format: Format) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{}: {what}", self.name));
        if self.kind.is_empty() {
            return wrong("no type");
        }
        let suffixes: &[&str] = match (self.kind.as_str(), format) {
            ("counter", Format::OpenMetrics) => &["_total"],
            ("info", _) => &["_info"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let belongs = |sample: &Sample| {
            suffixes.iter().any(|suffix| sample.name.strip_suffix(suffix) == Some(&self.name))
        };
        if !self.samples.iter().all(belongs) {
            return wrong("a sample of another family");
        }
        if self.kind == "counter" && format == Format::Prometheus && !self.name.ends_with("_total") {
            return wrong("a counter whose name does not end with _total");
        }
        let rises = self.kind == "counter" || self.kind == "histogram";
        if rises && self.samples.iter().any(|sample| sample.value.is_nan() || sample.value < 0.0) {
            return wrong("a count below 0");
        }
        if self.kind == "histogram" { self.check_buckets() } else { Ok(()) }
    }

    /// Buckets of a series rise, in bounds and counts, up to `+Inf`, which is the count.
    fn check_buckets(&self) -> Result<(), String> {
        let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
        let mut counts = BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            if sample.name.ends_with("_bucket") {
                let le = labels.remove("le").ok_or_else(|| format!("{}: a bucket without le", self.name))?;
                series.entry(labels).or_default().push((read_value(&le)?, sample.value));
            } else if sample.name.ends_with("_count") {
                counts.insert(labels, sample.value);
            }
        }
        for (labels, buckets) in &series {
            let rises = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
            let last = buckets.last().filter(|(bound, _)| *bound == f64::INFINITY);
            if !rises || last.map(|(_, count)| count) != counts.get(labels) {
                return Err(format!("{}: buckets of {labels:?} that are not right", self.name));
            }
        }
        if series.len() == counts.len() {
            Ok(())
        } else {
            Err(format!("{}: a count without buckets", self.name))
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(());
    }
    Err(format!("{name:?} is not a name"))
}

fn read_value(text: &str) -> Result<f64, String> {
    match text {
        "+Inf" => Ok(f64::INFINITY),
        _ => text.parse().map_err(|_| format!("{text:?} is not a number")),
    }
}

fn read_series(text: &str) -> Result<(String, BTreeMap<String, String>), String> {
    let Some((name, labels)) = text.split_once('{') else {
        check_name(text)?;
        return Ok((text.to_owned(), BTreeMap::new()));
    };
    check_name(name)?;
    let mut rest = labels.strip_suffix('}').ok_or("labels that do not end")?;
    let mut read = BTreeMap::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        check_name(label)?;
        let (value, after) = read_quoted(after)?;
        if read.insert(label.to_owned(), value).is_some() {
            return Err(format!("label {label} twice"));
        }
        rest = match after.strip_prefix(',') {
            Some("") => return Err("a comma without a label".to_owned()),
            Some(more) => more,
            None if after.is_empty() => after,
            None => return Err("something behind a label".to_owned()),
        };
    }
    if read.is_empty() { Err("empty braces".to_owned()) } else { Ok((name.to_owned(), read)) }
}

/// A value up to its closing quote, and what follows that.
fn read_quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(match characters.next() {
                Some((_, 'n')) => '\n',
                Some((_, escaped @ ('\\' | '"'))) => escaped,
                _ => return Err("an unknown escape".to_owned()),
            }),
            other => value.push(other),
        }
    }
    Err("a value that does not end".to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GOOD: &str = "\
# HELP a_total Things.
# TYPE a_total counter
a_total{x=\"1 \\\"\\\\\\n\",y=\"\"} 3
# HELP b Sizes.
# TYPE b histogram
b_bucket{le=\"1.0\"} 1
b_bucket{le=\"+Inf\"} 2
b_sum 7.5
b_count 2
";

    #[test]
    fn what_is_right_is_read() {
        let scrape = Scrape::parse(GOOD, Format::Prometheus).expect("right");
        assert_eq!(scrape.value("a_total", &[("x", "1 \"\\\n"), ("y", "")]), Some(3.0));
        assert_eq!(scrape.value("b_count", &[]), Some(2.0));
        assert_eq!(scrape.value("b_count", &[("x", "")]), None);
    }

    #[rstest]
    #[case("a_total{x", "b_total{x", "another family")]
    #[case("a_total counter", "a_total sum", "unknown type")]
    #[case(" 3\n", " x\n", "not a number")]
    #[case(" 3\n", " -3\n", "below 0")]
    #[case("{le=\"+Inf\"} 2", "{le=\"+Inf\"} 3", "not right")]
    #[case("{le=\"1.0\"} 1", "{le=\"1.0\"} 9", "not right")]
    #[case("b_sum 7.5\n", "b_sum 7.5\nb_sum 7.5\n", "second value")]
    #[case("b_count 2\n", "b_count 2", "does not end")]
    #[case("\\n\"", "\\x\"", "unknown escape")]
    #[case(",y=", ",y", "without a value")]
    #[case("# TYPE b histogram\n", "", "no type")]
    #[case("# HELP b ", "# HELP 1b ", "not a name")]
    #[case("# HELP b ", "# Help b ", "says nothing")]
    fn what_is_wrong_is_not(#[case] part: &str, #[case] by: &str, #[case] why: &str) {
        assert!(GOOD.contains(part), "{part}");
        let error = Scrape::parse(&GOOD.replacen(part, by, 1), Format::Prometheus).expect_err("wrong");
        assert!(error.contains(why), "{error}");
    }
}
