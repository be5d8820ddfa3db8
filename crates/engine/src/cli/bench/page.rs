//! The reports as a person reads them in a terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use engine::bench::decode::DecodeReport;
use engine::bench::equality::MARGIN_PPM;
use engine::bench::figures::{Figures, Spread};
use engine::bench::machine::Machine;
use engine::bench::report::{ModelNote, Report};

/// Appends one line; writing to a string cannot fail.
macro_rules! line {
    ($out:expr $(, $($part:tt)*)?) => {
        let _ = writeln!($out $(, $($part)*)?);
    };
}

/// Renders machine, work, figures, bound and equality.
pub fn render(report: &Report) -> String {
    let mut page = String::new();
    let out = &mut page;
    let work = &report.work;
    let record = work.record_tokens.map_or(0.0, |tokens| tokens.median);
    render_place(out, &report.model, &report.machine);
    line!(
        out,
        "work             {}: P {} + S {record:.0} + B {} tokens, output {}; {} records, {} in flight",
        work.source,
        work.prefix_tokens,
        work.branch_tokens,
        work.output_tokens,
        work.records,
        work.concurrency
    );
    line!(
        out,
        "rounds           {}, figures are medians\n",
        report.rounds
    );
    line!(out, "{}\n", rates(report));
    line!(out, "{}\n", costs(report));
    render_bound(out, report);
    render_equality(out, report);
    for note in &report.notes {
        line!(out, "note             {note}");
    }
    page
}

/// Renders machine, work and figures of `engine bench decode`.
pub fn render_decode(report: &DecodeReport) -> String {
    let mut page = String::new();
    let out = &mut page;
    render_place(out, &report.model, &report.machine);
    let work = &report.work;
    line!(
        out,
        "work             {} prompts of {:.0} tokens behind {} shared ones, {} tokens written for each",
        work.requests,
        work.prompt_tokens.map_or(0.0, |tokens| tokens.median),
        work.prefix_tokens,
        work.output_tokens
    );
    line!(
        out,
        "rounds           {}, figures are medians\n",
        report.rounds
    );
    let mut table = table([
        "slots", "tokens/s", "min", "max", "x 1 slot", "steady", "x 1 slot", "forwards", "ms each",
        "rows",
    ]);
    let times = |ratio: Option<f64>| ratio.map_or(String::new(), |times| format!("{times:.2}"));
    for figures in &report.figures {
        let steady = figures.steady_tokens_per_s;
        table.add_row([
            figures.slots.to_string(),
            short(figures.tokens_per_s.median),
            short(figures.tokens_per_s.min),
            short(figures.tokens_per_s.max),
            times(figures.times_one_slot),
            steady.map_or(String::new(), |rate| short(rate.median)),
            times(figures.steady_times_one_slot),
            figures.forwards.to_string(),
            short(figures.forward_ms.median),
            figures.rows.to_string(),
        ]);
    }
    line!(out, "{}\n", align(table));
    let texts = report.samples.len() * work.requests;
    line!(
        out,
        "same texts       {} of {texts}",
        texts as u64 - report.texts_differing()
    );
    if report.texts_differing() > 0 {
        line!(
            out,
            "FAILED: what is written depends on what is decoded beside it; see `samples` in bench.json"
        );
    }
    page
}

fn render_place(out: &mut String, model: &ModelNote, machine: &Machine) {
    line!(
        out,
        "model            {} ({} on {}), blake3 {}",
        model.name,
        model.numerics,
        model.device,
        model.blake3.get(..12).unwrap_or_default()
    );
    line!(
        out,
        "machine          {}, {} cores, {}",
        machine.cpu.as_deref().unwrap_or(&machine.architecture),
        machine.cores,
        machine.isa
    );
}

fn rates(report: &Report) -> Table {
    let mut table = table([
        "arm",
        "records/s",
        "min",
        "max",
        "x unshared",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "first ms/rec",
        "last ms/rec",
    ]);
    for figures in &report.figures {
        let speed_up = report.speed_ups.iter().find(|s| s.arm == figures.arm);
        table.add_row([
            figures.arm.name().to_owned(),
            short(figures.records_per_s.median),
            short(figures.records_per_s.min),
            short(figures.records_per_s.max),
            speed_up.map_or(String::new(), |speed_up| format!("{:.2}", speed_up.times)),
            short(figures.p50_ms.median),
            short(figures.p90_ms.median),
            short(figures.p99_ms.median),
            short(figures.first_ms.median),
            short(figures.last_ms.median),
        ]);
    }
    align(table)
}

fn costs(report: &Report) -> Table {
    let mut table = table([
        "arm",
        "computed",
        "cached",
        "all tokens",
        "load s",
        "prefix s",
        "records s",
        "peak MiB",
        "GOP/s",
        "of GEMM %",
    ]);
    for figures in &report.figures {
        let Figures { tokens, .. } = figures;
        let count = |of: fn(&engine::bench::arms::Tokens) -> u64| {
            tokens
                .as_ref()
                .map_or(String::new(), |tokens| of(tokens).to_string())
        };
        let scaled = |spread: Option<Spread>, by: f64| {
            spread.map_or(String::new(), |spread| format!("{:.0}", spread.median * by))
        };
        table.add_row([
            figures.arm.name().to_owned(),
            count(|tokens| tokens.computed),
            count(|tokens| tokens.cached),
            count(|tokens| tokens.logical),
            short(figures.load_s.median),
            short(figures.prefix_s.median),
            short(figures.records_s.median),
            scaled(figures.peak_bytes, 1.0 / f64::from(1 << 20)),
            scaled(figures.flops_per_s, 1e-9),
            scaled(figures.gemm_share, 100.0),
        ]);
    }
    align(table)
}

fn render_bound(out: &mut String, report: &Report) {
    let bound = &report.bound;
    line!(
        out,
        "bound            {:.2} times by operations, {:.2} by tokens",
        bound.flop_ratio,
        bound.token_ratio
    );
    for speed_up in &report.speed_ups {
        if let Some(share) = speed_up.bound_share {
            line!(
                out,
                "achieved/bound   {} {:.2} of {:.2}: {:.0} %",
                speed_up.arm.name(),
                speed_up.times,
                bound.flop_ratio,
                share * 100.0
            );
        }
    }
    let rates = report.figures.iter().filter_map(|f| f.gemm_flops_per_s);
    if let Some(rate) = Spread::of(rates.map(|rate| rate.median)) {
        line!(
            out,
            "GEMM alone       {:.0} GOP/s on this model's shapes, {} rows ({:.0} to {:.0} over the arms)",
            rate.median / 1e9,
            report.work.batch_tokens,
            rate.min / 1e9,
            rate.max / 1e9
        );
    }
}

fn render_equality(out: &mut String, report: &Report) {
    for equality in &report.equality {
        if equality.decisions > 0 {
            line!(
                out,
                "same answers     {}: {} decisions, largest difference {} ppm, {} flipped, {} of them with a margin above {}",
                equality.arm.name(),
                equality.decisions,
                equality.largest_difference_ppm,
                equality.flips,
                equality.flips_above_margin,
                f64::from(MARGIN_PPM) / 1e6
            );
        }
        if equality.texts > 0 {
            line!(
                out,
                "same texts       {}: {} of {}",
                equality.arm.name(),
                equality.texts - equality.texts_differing,
                equality.texts
            );
        }
    }
    if let Some(margins) = &report.margins {
        line!(
            out,
            "margins          smallest {} ppm, median {} ppm, {} of the decisions at most {}",
            margins.smallest_ppm,
            margins.median_ppm,
            margins.narrow,
            f64::from(MARGIN_PPM) / 1e6
        );
    }
    if report.flips_above_margin() > 0 {
        line!(
            out,
            "FAILED: the arms do not decide alike; see `equality` in bench.json"
        );
    }
}

fn table<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(head);
    table
}

/// Numbers to the right, names to the left.
fn align(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Three significant digits.
fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}
