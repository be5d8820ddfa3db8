//! Which vector instructions this process uses: decided once, by the machine and by whoever wants to
//! know how a plainer machine would do.

use std::sync::OnceLock;

/// Classes of instructions, from the plainest to the widest. Integer sums are the same under all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain loops: the reference.
    Scalar,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// The same, with 8- and 16-bit multiply-add into 32-bit sums.
    AvxVnni,
    /// 512-bit vectors with 8- and 16-bit multiply-add into 32-bit sums.
    Avx512Vnni,
}

/// What the process was limited to.
static LIMIT: OnceLock<Isa> = OnceLock::new();
/// What it uses.
static USED: OnceLock<Isa> = OnceLock::new();

impl Isa {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::AvxVnni, Self::Avx512Vnni];

    /// The widest one that this machine has and that [`Isa::limit`] allows.
    pub fn detect() -> Self {
        *USED.get_or_init(|| {
            let limit = LIMIT.get().copied().unwrap_or(Self::Avx512Vnni);
            let found = Self::available().into_iter();
            found
                .filter(|isa| *isa <= limit)
                .max()
                .unwrap_or(Self::Scalar)
        })
    }

    /// Keeps this process from using wider instructions, for comparisons; it must come before the
    /// first use. Returns whether it came in time.
    pub fn limit(self) -> bool {
        USED.get().is_none() && LIMIT.set(self).is_ok()
    }

    /// Its name in a numerics tier and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512Vnni => "avx512vnni",
            Self::AvxVnni => "avxvnni",
            Self::Avx2 => "avx2",
            Self::Scalar => "scalar",
        }
    }

    /// All that this machine has, from the plainest to the widest.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut found = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            found.push(Self::Avx2);
            if std::is_x86_feature_detected!("avxvnni") {
                found.push(Self::AvxVnni);
            }
            if std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512dq")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512vnni")
            {
                found.push(Self::Avx512Vnni);
            }
        }
        found
    }
}
