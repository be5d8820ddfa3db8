//! The report as one SVG: records per second of each arm, and its pace from first to last record.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::arms::Sample;
use super::figures::{Figures, Spread, records_per_s};
use super::report::Report;
use super::{Arm, BenchError};

const WIDTH: u32 = 1080;
const HEIGHT: u32 = 470;
const TITLE_HEIGHT: i32 = 74;
const BARS_WIDTH: i32 = 500;
const FONT: &str = "sans-serif";
/// Ink of what is to be read first.
const INK: RGBColor = RGBColor(34, 34, 34);
/// Ink of what stands behind it.
const FAINT: RGBColor = RGBColor(120, 120, 120);
const GRID: RGBColor = RGBColor(226, 226, 226);
/// Points of one curve at most.
const POINTS: usize = 24;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the report.
///
/// # Errors
/// `Plot` where the backend refuses.
pub fn draw(report: &Report) -> Result<String, BenchError> {
    let mut svg = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        draw_on(&area, report).map_err(|error| BenchError::Plot {
            problem: error.to_string(),
        })
    };
    drawn.map(|()| svg)
}

fn draw_on(area: &Area<'_>, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(TITLE_HEIGHT);
    write(&head, &title(report), (24, 18), 20, INK, HPos::Left)?;
    write(&head, &subtitle(report), (24, 46), 13, FAINT, HPos::Left)?;
    let (left, right) = body.split_horizontally(BARS_WIDTH);
    draw_bars(&left, report)?;
    draw_paces(&right, report)?;
    area.present()?;
    Ok(())
}

fn title(report: &Report) -> String {
    let rate = |arm| Some(report.figures_of(arm)?.records_per_s.median);
    let speed_up = report.speed_ups.iter().find(|s| s.arm == Arm::Shared);
    match (rate(Arm::Shared), rate(Arm::Unshared), speed_up) {
        (Some(shared), Some(unshared), Some(speed_up)) => format!(
            "One shared prefix: {} records/s, {} without ({:.2} times; the operations allow {:.2})",
            short(shared),
            short(unshared),
            speed_up.times,
            report.bound.flop_ratio
        ),
        _ => "Prefix reuse".into(),
    }
}

fn subtitle(report: &Report) -> String {
    let work = &report.work;
    let machine = &report.machine;
    let cpu = machine.cpu.as_deref().unwrap_or(&machine.architecture);
    let record = work.record_tokens.map_or(0.0, |tokens| tokens.median);
    let rounds = match report.rounds {
        1 => "1 round".to_owned(),
        rounds => format!("median of {rounds} rounds"),
    };
    format!(
        "{}, {}, prefix {}, record {record:.0}, questions {}, output {} tokens; {} records, {rounds}; {cpu}, {} cores",
        report.model.name,
        report.model.numerics,
        work.prefix_tokens,
        work.branch_tokens,
        work.output_tokens,
        work.records,
        machine.cores
    )
}

/// One bar per arm from the top, with its rate written at the end, a line from the slowest round to
/// the fastest, and behind all a line at what the operations allow.
fn draw_bars(area: &Area<'_>, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    write(area, "records per second", (24, 8), 14, INK, HPos::Left)?;
    let figures = &report.figures;
    let base = report.figures_of(Arm::Unshared);
    let bound = base.map_or(0.0, |base| {
        base.records_per_s.median * report.bound.flop_ratio
    });
    let largest = figures.iter().map(|f| f.records_per_s.max);
    let largest = largest.fold(bound.max(f64::MIN_POSITIVE), f64::max);
    let (left, right, top) = (96, BARS_WIDTH - 84, 34);
    let step = ((HEIGHT as i32 - TITLE_HEIGHT - top - 26) / figures.len().max(1) as i32).min(64);
    let at = |rate: f64| left + (rate / largest * f64::from(right - left)).round() as i32;
    if bound > 0.0 {
        let bottom = top + step * figures.len() as i32;
        let line = PathElement::new([(at(bound), top - 6), (at(bound), bottom)], FAINT);
        area.draw(&line)?;
        let text = format!("the operations allow {}", short(bound));
        let place = (at(bound) + 40, bottom + 2);
        write(area, &text, place, 12, FAINT, HPos::Right)?;
    }
    for (index, figures) in figures.iter().enumerate() {
        let y = top + step * index as i32;
        let middle = y + step * 2 / 5;
        let Spread { median, min, max } = figures.records_per_s;
        let colour = colour(figures.arm);
        area.draw(&Rectangle::new(
            [(left, y), (at(median), y + step * 4 / 5)],
            colour.filled(),
        ))?;
        if at(min) < at(max) {
            let across = |from, to| PathElement::new([from, to], INK.stroke_width(1));
            area.draw(&across((at(min), middle), (at(max), middle)))?;
            for end in [at(min), at(max)] {
                area.draw(&across((end, middle - 4), (end, middle + 4)))?;
            }
        }
        let name = figures.arm.name();
        write(area, name, (left - 10, middle - 8), 14, INK, HPos::Right)?;
        let place = (at(max) + 8, middle - 8);
        write(area, &short(median), place, 14, INK, HPos::Left)?;
    }
    Ok(())
}

/// Milliseconds per record as the records go by, one curve per arm: flat is as it should be.
fn draw_paces(area: &Area<'_>, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    let title = "milliseconds per record, from the first to the last";
    write(area, title, (16, 8), 14, INK, HPos::Left)?;
    let area = area.margin(30, 0, 0, 0);
    let curves: Vec<(Arm, Vec<(f64, f64)>)> = report
        .figures
        .iter()
        .filter_map(|figures| Some((figures.arm, pace(middle_sample(report, figures)?))))
        .collect();
    let points = || curves.iter().flat_map(|(_, points)| points);
    let highest = points()
        .map(|point| point.1)
        .fold(f64::MIN_POSITIVE, f64::max);
    let last = report.work.records as f64;
    let mut chart = ChartBuilder::on(&area)
        .margin_right(92)
        .margin_bottom(6)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..last, 0.0..highest * 1.08)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .label_style((FONT, 14.9).into_font().color(&FAINT))
        .x_desc("records done")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| short(*y))
        .draw()?;
    let mut ends = Vec::new();
    for (arm, points) in &curves {
        chart.draw_series(LineSeries::new(
            points.iter().copied(),
            colour(*arm).stroke_width(2),
        ))?;
        if let Some(&end) = points.last() {
            ends.push((chart.backend_coord(&end), *arm));
        }
    }
    let (left, top) = area.get_base_pixel();
    name_curves(&area, ends, (left, top))
}

/// Writes each curve's name at its end, apart from the others.
fn name_curves(
    area: &Area<'_>,
    mut ends: Vec<((i32, i32), Arm)>,
    (left, top): (i32, i32),
) -> Result<(), Box<dyn std::error::Error>> {
    ends.sort_by_key(|&((_, y), _)| -y);
    let mut below = i32::MAX;
    for ((x, y), arm) in ends {
        below = (y - top - 8).min(below.saturating_sub(15));
        let place = (x - left + 8, below);
        write(area, arm.name(), place, 13, colour(arm), HPos::Left)?;
    }
    Ok(())
}

/// The sample whose rate is nearest to the median.
fn middle_sample<'a>(report: &'a Report, figures: &Figures) -> Option<&'a Sample> {
    let distance = |sample: &&Sample| (records_per_s(sample) - figures.records_per_s.median).abs();
    report
        .samples
        .iter()
        .filter(|sample| sample.arm == figures.arm)
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// Points (records done, milliseconds per record since the point before). Records of one forward
/// are done together, so that a point lies where the next answer took time of its own.
fn pace(sample: &Sample) -> Vec<(f64, f64)> {
    let done = &sample.done_us;
    let count = done.len();
    let step = count.div_ceil(POINTS);
    let mean_us = done.last().map_or(0, |&last| last / count as u64);
    let mut out = Vec::new();
    let (mut records, mut us) = (0, 0);
    for (index, &until) in done.iter().enumerate() {
        let last = index + 1 == count;
        let together = !last && done[index + 1] - until < mean_us / 4;
        let new = index + 1 - records;
        if last || (new >= step && !together) {
            out.push(((index + 1) as f64, (until - us) as f64 / 1e3 / new as f64));
            (records, us) = (index + 1, until);
        }
    }
    out
}

fn colour(arm: Arm) -> RGBColor {
    match arm {
        Arm::Shared => RGBColor(0, 114, 178),
        Arm::Unshared => RGBColor(213, 94, 0),
        Arm::Salted => RGBColor(204, 121, 167),
        Arm::Nonce => RGBColor(140, 110, 30),
        Arm::Serial => RGBColor(0, 158, 115),
        Arm::Api => RGBColor(90, 90, 90),
    }
}

/// Three significant digits.
fn short(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn write(
    area: &Area<'_>,
    text: &str,
    place: (i32, i32),
    size: i32,
    colour: RGBColor,
    side: HPos,
) -> Result<(), Box<dyn std::error::Error>> {
    // The backend takes a size for a font's height, and writes it as the smaller size of its em.
    let style = (FONT, f64::from(size) * 1.24).into_font().color(&colour);
    let style = style.pos(Pos::new(side, VPos::Top));
    area.draw(&Text::new(text.to_owned(), place, style))?;
    Ok(())
}
