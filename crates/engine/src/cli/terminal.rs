//! The answer as a person reads it in a terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use operator::answer::{CitedAnswer, Selection};
use operator::fact::Status;
use operator::run::{RunUsage, Rung, RungKind};

use super::ladder;

/// Longest quote shown, in characters; the whole one is in `answer.json`.
const QUOTE_CHARS: usize = 100;
/// Citations shown for one claim.
const CITES_SHOWN: usize = 5;

/// Appends one line; writing to a string cannot fail.
macro_rules! line {
    ($out:expr $(, $($part:tt)*)?) => {
        let _ = writeln!($out $(, $($part)*)?);
    };
}

/// Renders coverage, claims with their citations, and what was computed and reused.
pub fn render(answer: &CitedAnswer, usage: &RunUsage) -> String {
    let mut page = String::new();
    let out = &mut page;
    if answer.simulated {
        line!(
            out,
            "SIMULATED: answers come from a recording, no model was asked.\n"
        );
    }
    if let Some(quarantine) = &answer.quarantine {
        line!(
            out,
            "QUARANTINED: {}; nothing of this run may be taken for a fact.\n",
            quarantine.reason
        );
    }
    line!(out, "{}\n", answer.question);
    render_coverage(out, answer);
    line!(out);
    for claim in &answer.claims {
        line!(out, "* {}", claim.text);
        for cite in claim.cites.iter().take(CITES_SHOWN) {
            for span in cite.span.iter().chain(&cite.also) {
                let quote = match &span.quote {
                    Some(quote) => format!("\"{}\"", shorten(quote)),
                    None => format!("redacted, {}", &span.quote_hash.to_string()[..12]),
                };
                line!(out, "    [{}] {}: {quote}", cite.unit_id, span.field);
            }
            if cite.span.is_none() {
                line!(out, "    [{}]", cite.unit_id);
            }
        }
        let hidden = claim
            .cites_total
            .saturating_sub(claim.cites.len().min(CITES_SHOWN) as u64);
        if hidden > 0 {
            line!(out, "    ... and {hidden} more");
        }
    }
    for selection in &answer.selections {
        line!(out, "\n{}\n{}", selection.told(), choices(selection));
        for line in selection.closest() {
            line!(out, "  {line}");
        }
    }
    if let Some(audit) = &answer.audit {
        line!(out, "\naudit            {}", audit.text);
    }
    render_usage(out, answer, usage);
    line!(out, "\n{}", ladder::table(&usage.ladder));
    page
}

fn render_coverage(out: &mut String, answer: &CitedAnswer) {
    let counts = &answer.coverage;
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "records",
        "excluded",
        "decided",
        "abstained",
        "errored",
        "cancelled",
        "not run",
    ]);
    table.add_row(
        [
            counts.units,
            counts.excluded,
            counts.decided,
            counts.abstained,
            counts.errored,
            counts.cancelled,
            counts.not_run,
        ]
        .map(|count| count.to_string()),
    );
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    line!(out, "{table}");
    if let Some(stop) = &answer.stop {
        line!(out, "STOPPING RULES: {}", stop.text);
    }
    if !answer.complete {
        line!(out, "INCOMPLETE: some records have no answer:");
        for reason in answer.coverage_by_reason.iter().filter(|reason| {
            matches!(
                reason.status,
                Status::Errored | Status::Cancelled | Status::NotRun
            )
        }) {
            let why = reason.reason.as_deref().unwrap_or("no reason given");
            line!(
                out,
                "  {} x {:?} at {}: {}",
                reason.units,
                reason.status,
                reason.stage,
                why
            );
        }
    }
}

/// Option by outcome.
fn choices(selection: &Selection) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut rows = selection.matrix().into_iter();
    if let Some(header) = rows.next() {
        table.set_header(header);
    }
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn render_usage(out: &mut String, answer: &CitedAnswer, usage: &RunUsage) {
    let job = &usage.job;
    line!(out, "\nmodel            {}", answer.backend.name);
    line!(out, "tokens computed  {}", job.computed_tokens);
    if let Some(micros) = usage.money_micros {
        line!(
            out,
            "money            {}.{:06}",
            micros / 1_000_000,
            micros % 1_000_000
        );
    }
    let forks = match (job.forks, job.prefix_computed_tokens) {
        (0, _) => String::new(),
        (forks, computed) => {
            let when = if computed > 0 { "once" } else { "earlier" };
            let tokens = job.prefix_tokens;
            match stages(usage) {
                0 | 1 => format!(" ({forks} forks of one {tokens}-token prefix, computed {when})"),
                several => format!(
                    " ({forks} forks of the prefixes of {several} stages, {tokens} tokens, each computed \
                     {when})"
                ),
            }
        }
    };
    line!(out, "tokens reused    {}{forks}", job.cached_tokens);
    if let Some(times) = usage
        .tokens_as_if_uncached
        .checked_div(job.computed_tokens.max(1))
        && job.computed_tokens > 0
    {
        let tokens = usage.tokens_as_if_uncached;
        line!(
            out,
            "without reuse    {tokens} would have been computed ({times} times as many)"
        );
    }
    if job.repeated_units > 0 {
        let (records, tokens) = (job.repeated_units, job.repeated_tokens);
        line!(
            out,
            "asked again      {records} records that 8 bits left unclear ({tokens} tokens)"
        );
    }
    line!(out, "remembered       {} records", usage.remembered_units);
    if usage.duplicate_units > 0 {
        let equal = usage.duplicate_units;
        line!(
            out,
            "equal texts      {equal} records have the answer of another"
        );
    }
    let composed = &usage.composed;
    if composed.texts + composed.remembered > 0 {
        line!(
            out,
            "summaries        {} written ({} tokens from {}), {} remembered",
            composed.texts,
            composed.generated_tokens,
            composed.prompt_tokens,
            composed.remembered
        );
    }
    line!(
        out,
        "time             {}.{:03} s",
        usage.wall_ms / 1000,
        usage.wall_ms % 1000
    );
    line!(out, "result           {}", answer.result_hash);
}

/// Stages that a model was asked at.
fn stages(usage: &RunUsage) -> usize {
    let asked = |rung: &&Rung| rung.kind == RungKind::Stage && rung.computed_tokens > 0;
    usage.ladder.iter().filter(asked).count()
}

/// One line, at most `QUOTE_CHARS` characters, control characters replaced.
fn shorten(text: &str) -> String {
    let mut out: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(QUOTE_CHARS)
        .collect();
    if text.chars().nth(QUOTE_CHARS).is_some() {
        out.push_str("...");
    }
    out
}
