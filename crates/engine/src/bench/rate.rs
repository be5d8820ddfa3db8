//! The rate that the projections alone reach on this machine, in the same process: what no forward
//! of the same numerics can beat.

use std::time::{Duration, Instant};

use crate::model::ModelConfig;
use crate::model::linear::{Linear, Numerics, Rounded};

/// Time spent on each shape, at least.
const SPENT: Duration = Duration::from_millis(60);

/// Operations per second of the four projections of one layer, for `rows` rows at once.
///
/// The best repetition of each shape counts, so that other work on the machine lowers it least;
/// the weights of one layer stay in the caches, so that it errs upwards.
pub fn measure(config: &ModelConfig, numerics: Numerics, rows: usize) -> f64 {
    let query = config.heads * config.head_dim;
    let shapes = [
        (config.hidden, config.qkv_width()),
        (query, config.hidden),
        (config.hidden, 2 * config.feed_forward),
        (config.feed_forward, config.hidden),
    ];
    let mut seconds = 0.0;
    let mut operations = 0.0;
    for (inputs, outputs) in shapes {
        seconds += best_seconds(inputs, outputs, numerics, rows);
        operations += 2.0 * (inputs * outputs * rows) as f64;
    }
    operations / seconds
}

fn best_seconds(inputs: usize, outputs: usize, numerics: Numerics, rows: usize) -> f64 {
    let linear = Linear::new(inputs, outputs, ramp(inputs * outputs), None, numerics);
    let x = ramp(rows * inputs);
    let mut out = vec![0.0; rows * outputs];
    let mut scratch = Rounded::default();
    let started = Instant::now();
    let mut best = f64::INFINITY;
    let mut repetitions = 0;
    while repetitions < 4 || started.elapsed() < SPENT {
        let clock = Instant::now();
        linear.forward(&x, true, &mut scratch, &mut out);
        best = best.min(clock.elapsed().as_secs_f64());
        repetitions += 1;
    }
    best
}

/// Values between -1 and 1 without a pattern that matters; the time does not depend on them.
fn ramp(len: usize) -> Vec<f32> {
    (0..len)
        .map(|index| (index % 61) as f32 / 30.0 - 1.0)
        .collect()
}
