//! Tables for people: aligned columns of printable text. It never writes anything itself.

use std::fmt;

/// Spaces between two columns.
const COLUMN_GAP: usize = 3;

/// Which edge of a column is straight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The left one: words.
    Left,
    /// The right one: numbers.
    Right,
}

/// A table with a headline.
#[derive(Clone, Debug)]
pub struct Table<const COLUMNS: usize> {
    columns: [(&'static str, Align); COLUMNS],
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    /// A table of no rows.
    pub fn new(columns: [(&'static str, Align); COLUMNS]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row. What could move the cursor or ring the bell is shown escaped.
    pub fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells.map(|cell| printable(&cell)));
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headline = self.columns.map(|(title, _)| title.to_owned());
        let width = |text: &str| text.chars().count();
        let mut widths = [0; COLUMNS];
        for row in std::iter::once(&headline).chain(&self.rows) {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = width(cell).max(*widest);
            }
        }
        for row in std::iter::once(&headline).chain(&self.rows) {
            let mut line = String::new();
            for (index, (cell, (_, align))) in row.iter().zip(self.columns).enumerate() {
                let padding = " ".repeat(widths[index] - width(cell));
                if index > 0 {
                    line.push_str(&" ".repeat(COLUMN_GAP));
                }
                match align {
                    Align::Left => line.extend([cell, padding.as_str()]),
                    Align::Right => line.extend([padding.as_str(), cell]),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Text that changes nothing on a terminal but the place where it stands: control characters, and those that
/// turn the direction of writing, are escaped.
pub fn printable(text: &str) -> String {
    let turns_text =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns_text(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The beginning of a text, at most `length` characters with the mark of what is missing.
pub fn shortened(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    text.chars().take(length.saturating_sub(1)).chain(std::iter::once('…')).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_tail() {
        let mut table = Table::new([("ID", Align::Left), ("MEMORY", Align::Right), ("NAME", Align::Left)]);
        table.row(["a".into(), "1.5 MiB".into(), "web".into()]);
        table.row(["abcdef".into(), "12 B".into(), String::new()]);
        let expected = "ID        MEMORY   NAME\n\
                        a        1.5 MiB   web\n\
                        abcdef      12 B\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn an_empty_table_has_its_headline() {
        assert_eq!(Table::new([("ID", Align::Left), ("NAME", Align::Left)]).to_string(), "ID   NAME\n");
    }

    #[test]
    fn an_empty_first_cell_keeps_its_column() {
        let mut table = Table::new([("ID", Align::Left), ("NAME", Align::Left)]);
        table.row([String::new(), "web".into()]);
        assert_eq!(table.to_string(), "ID   NAME\n     web\n");
    }

    /// A container's command is chosen by whoever makes it, and must not be able to write over the table.
    #[rstest]
    #[case("sh -c \u{1b}[2Jx", "sh -c \\u{1b}[2Jx")]
    #[case("a\r\nb\t\u{7}", "a\\r\\nb\\t\\u{7}")]
    #[case("\u{9b}31m", "\\u{9b}31m")]
    #[case("x\u{202e}y", "x\\u{202e}y")]
    #[case("grün ✓", "grün ✓")]
    fn hostile_text_is_shown_escaped(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(printable(text), shown);
    }

    #[rstest]
    #[case("sleep", 5, "sleep")]
    #[case("sleep 10", 6, "sleep…")]
    #[case("üüüü", 3, "üü…")]
    fn long_text_is_cut_between_characters(#[case] text: &str, #[case] length: usize, #[case] shown: &str) {
        assert_eq!(shortened(text, length), shown);
    }
}
