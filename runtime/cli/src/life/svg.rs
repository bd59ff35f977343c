//! The picture of a life: a row for each thing that happened, with a bar from when to when.
//!
//! Owns: where what is drawn, and that no text of a container can be more than text. Never: fetches anything; the picture is
//! whole without a network or a style sheet.

use std::fmt::{self, Write};

use mainstay_messages::Timestamp;

use super::axis::Axis;
use super::{Row, RowKind};
use crate::words::offset_ms;

/// The most rows that are drawn; a picture of more is no picture.
pub const ROWS_MAX: usize = 2_000;
/// The most characters of a text that are drawn; the rest is in the table.
const TEXT_LENGTH_MAX: usize = 72;

const ROW_HEIGHT: usize = 18;
const BAR_HEIGHT: usize = 10;
const HEAD_HEIGHT: usize = 56;
const FOOT_HEIGHT: usize = 16;
/// Where the three columns begin, and how wide the axis is.
const WHO_LEFT: usize = 12;
const TEXT_LEFT: usize = 176;
const AXIS_LEFT: usize = 620;
const AXIS_WIDTH: f64 = 640.0;
/// Room for the duration beside a bar that ends at the right.
const TIME_WIDTH: usize = 120;
/// How far marks of the axis are apart, at least.
const MARKS_APART: f64 = 96.0;
const STEP_INDENT: usize = 16;

/// A picture of rows.
pub fn picture(title: &str, rows: &[Row]) -> String {
    let mut out = String::new();
    // A string takes all that is written to it.
    let written = draw(&mut out, title, rows);
    debug_assert!(written.is_ok());
    out
}

fn draw(out: &mut String, title: &str, rows: &[Row]) -> fmt::Result {
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    let rows = &rows[..rows.len() - left_out];
    let moments = rows.iter().flat_map(|row| std::iter::once(row.start).chain(row.end));
    let axis = Axis::new(moments, AXIS_WIDTH);
    let (first, last) = bounds(rows);
    let height =
        HEAD_HEIGHT + rows.len() * ROW_HEIGHT + FOOT_HEIGHT + if left_out > 0 { ROW_HEIGHT } else { 0 };
    let width = AXIS_LEFT + AXIS_WIDTH as usize + TIME_WIDTH;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"11\">"
    )?;
    writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>")?;
    writeln!(
        out,
        "<text x=\"{WHO_LEFT}\" y=\"20\" font-size=\"14\" fill=\"#111111\">{}</text>",
        text(title)
    )?;
    writeln!(
        out,
        "<text x=\"{WHO_LEFT}\" y=\"38\" fill=\"#666666\">since {first}; milliseconds; the axis is wider where more happened</text>"
    )?;
    marks(out, &axis, first, height)?;
    for (row, number) in rows.iter().zip(0..) {
        draw_row(out, row, HEAD_HEIGHT + number * ROW_HEIGHT, &axis, last)?;
    }
    if left_out > 0 {
        let y = HEAD_HEIGHT + rows.len() * ROW_HEIGHT + BAR_HEIGHT + 2;
        writeln!(
            out,
            "<text x=\"{TEXT_LEFT}\" y=\"{y}\" fill=\"#666666\">and {left_out} more, which are not drawn</text>"
        )?;
    }
    writeln!(out, "</svg>")
}

fn bounds(rows: &[Row]) -> (Timestamp, Timestamp) {
    let first = rows.iter().map(|row| row.start).min().unwrap_or(Timestamp(0));
    let last = rows.iter().map(|row| row.end.unwrap_or(row.start)).max().unwrap_or(first);
    (first, last)
}

fn marks(out: &mut String, axis: &Axis, first: Timestamp, height: usize) -> fmt::Result {
    let bottom = height - FOOT_HEIGHT;
    for (moment, place) in axis.marks(MARKS_APART) {
        let x = AXIS_LEFT as f64 + place;
        writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#e3e3e3\"/><text x=\"{x:.1}\" y=\"{}\" font-size=\"9\" fill=\"#666666\">{}</text>",
            HEAD_HEIGHT - 4,
            HEAD_HEIGHT - 8,
            offset_ms(moment.nanos_since(first))
        )?;
    }
    Ok(())
}

fn draw_row(out: &mut String, row: &Row, top: usize, axis: &Axis, last: Timestamp) -> fmt::Result {
    let color = color(row.kind);
    let base = top + BAR_HEIGHT + 2;
    let indent = if row.is_step() { STEP_INDENT } else { 0 };
    let ink = if matches!(row.kind, RowKind::Trouble | RowKind::FailedStep) { color } else { "#222222" };
    write!(out, "<g><title>{}</title>", text(&row.text))?;
    if !row.is_step() {
        write!(out, "<text x=\"{WHO_LEFT}\" y=\"{base}\" fill=\"#666666\">{}</text>", text(&row.who))?;
    }
    let shown = text(&shortened(&row.text));
    write!(out, "<text x=\"{}\" y=\"{base}\" fill=\"{ink}\">{shown}</text>", TEXT_LEFT + indent)?;
    let left = AXIS_LEFT as f64 + axis.place(row.start);
    let middle = top + BAR_HEIGHT / 2 + 3;
    // A phase that nothing has ended goes on beyond the last thing that is known.
    let end = row.end.or((row.kind == RowKind::Phase).then_some(last));
    match end {
        None => write!(out, "<circle cx=\"{left:.1}\" cy=\"{middle}\" r=\"3.5\" fill=\"{color}\"/>")?,
        Some(end) => {
            let wide = (axis.place(end) + AXIS_LEFT as f64 - left).max(2.0);
            let y = top + 3;
            write!(
                out,
                "<rect x=\"{left:.1}\" y=\"{y}\" width=\"{wide:.1}\" height=\"{BAR_HEIGHT}\" rx=\"2\" fill=\"{color}\"/>"
            )?;
            let took = match row.took() {
                Some(took) => offset_ms(took).trim_start_matches('+').to_owned(),
                None => "goes on".to_owned(),
            };
            let x = left + wide + 4.0;
            write!(out, "<text x=\"{x:.1}\" y=\"{base}\" font-size=\"9\" fill=\"#444444\">{took}</text>")?;
        }
    }
    writeln!(out, "</g>")
}

fn color(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Moment => "#555555",
        RowKind::Trouble | RowKind::FailedStep => "#c62828",
        RowKind::Phase => "#7cb342",
        RowKind::Saga => "#b0bec5",
        RowKind::Act => "#1e88e5",
        RowKind::Undo => "#fb8c00",
        RowKind::Call => "#8e24aa",
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= TEXT_LENGTH_MAX {
        return text.to_owned();
    }
    let kept: String = text.chars().take(TEXT_LENGTH_MAX - 1).collect();
    format!("{kept}…")
}

/// A text as XML, of which nothing but characters is left.
fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            // Most of them are not allowed in XML at all.
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}')
            }
            other => out.push(other),
        }
    }
    out
}
