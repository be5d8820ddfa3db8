//! The binary `engine`: parses the command line and turns outcomes into exit codes.

use std::process::ExitCode;

use clap::Parser;

mod cli;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    match arguments.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", cli::chain(&error));
            ExitCode::from(cli::EXIT_FAILED)
        }
    }
}
