//! `engine bench`: measurements as commands, and what they share.

mod arm;
mod decode;
mod page;
mod prefix;

use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand, ValueEnum};
use engine::bench::report::ModelNote;
use engine::model::ModelConfig;
use engine::models::LocalModel;

use super::run::{DeviceArgument, NumericsArgument};

/// Arguments of `engine bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// The same records with one shared prefix, without it, and under its controls.
    Prefix(Box<prefix::PrefixArguments>),
    /// The same prompts continued with few and with many of them in flight.
    Decode(Box<decode::DecodeArguments>),
    /// One arm: reads a task on standard input, prints one line of JSON.
    #[command(hide = true)]
    Arm(arm::ArmArguments),
}

/// Where and how the forward runs: the same throughout a benchmark.
#[derive(Debug, Clone, Args)]
struct Tier {
    /// Where the forward runs.
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceArgument,
    /// Number format of the fast CPU path.
    #[arg(long, value_enum, default_value = "auto")]
    numerics: NumericsArgument,
}

/// Runs the chosen benchmark.
pub fn bench(arguments: BenchArguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        BenchCommand::Prefix(arguments) => prefix::prefix(&arguments),
        BenchCommand::Decode(arguments) => decode::decode(&arguments),
        BenchCommand::Arm(arguments) => arm::serve(&arguments),
    }
}

/// Whole numbers from 1.
fn amount() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

fn note(tier: &Tier, model: &LocalModel, config: &ModelConfig) -> ModelNote {
    let lower = |name: Option<clap::builder::PossibleValue>| {
        name.map_or(String::new(), |name| name.get_name().to_owned())
    };
    ModelNote {
        device: lower(tier.device.to_possible_value()),
        numerics: lower(tier.numerics.to_possible_value()),
        ..ModelNote::new(&model.name, &model.blake3, config)
    }
}
