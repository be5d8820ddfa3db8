//! `engine bench`: measurements as commands. Each arm of each round runs in a process of its own.

mod arm;
mod page;
mod prefix;

use std::process::ExitCode;

use clap::{Args, Subcommand};

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
    /// One arm: reads a task on standard input, prints one line of JSON.
    #[command(hide = true)]
    Arm(arm::ArmArguments),
}

/// Where and how the forward runs: the same for all arms.
#[derive(Debug, Clone, Args)]
struct Tier {
    /// Where the forward runs.
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceArgument,
    /// Number format of the fast CPU path.
    #[arg(long, value_enum, default_value = "int16")]
    numerics: NumericsArgument,
}

/// Runs the chosen benchmark.
pub fn bench(arguments: BenchArguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        BenchCommand::Prefix(arguments) => prefix::prefix(&arguments),
        BenchCommand::Arm(arguments) => arm::serve(&arguments),
    }
}
