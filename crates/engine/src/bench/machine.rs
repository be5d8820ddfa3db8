//! The machine and process that a figure belongs to.

use serde::{Deserialize, Serialize};

use crate::model::isa::Isa;

/// Where a benchmark ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// What the processor calls itself, where that can be read.
    pub cpu: Option<String>,
    /// Threads that may run at once.
    pub cores: usize,
    /// Processor family, such as `x86_64`.
    pub architecture: String,
    /// Instructions of the integer kernels.
    pub isa: String,
    /// Operating system.
    pub os: String,
    /// Bytes of memory, where that can be read.
    pub memory_bytes: Option<u64>,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            architecture: std::env::consts::ARCH.into(),
            isa: match Isa::detect() {
                Isa::Avx512Vnni => "avx512-vnni".into(),
                Isa::Avx2 => "avx2".into(),
                other => format!("{other:?}").to_lowercase(),
            },
            os: std::env::consts::OS.into(),
            memory_bytes: field("/proc/meminfo", "MemTotal").and_then(|text| kib(&text)),
        }
    }
}

/// The largest resident memory that this process has had, where the system tells.
pub fn peak_bytes() -> Option<u64> {
    kib(&field("/proc/self/status", "VmHWM")?)
}

/// The value of the first line `name: value`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// `1234 kB` in bytes.
fn kib(text: &str) -> Option<u64> {
    let number: u64 = text.strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kilobytes_of_the_process_file_are_read() {
        assert_eq!(kib("  2048 kB"), Some(2_097_152));
        assert_eq!(kib("2048"), None);
        assert_eq!(kib("many kB"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_covers_memory_that_was_touched_and_given_back() {
        let before = peak_bytes().unwrap();
        drop(std::hint::black_box(vec![
            1u8;
            before as usize + (64 << 20)
        ]));
        assert!(peak_bytes().unwrap() >= before + (32 << 20));
    }
}
