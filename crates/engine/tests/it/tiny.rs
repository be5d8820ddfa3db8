//! Seeded tiny models, written as safetensors directories and GGUF files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use engine::local;
use engine::model::config::Architecture;
use engine::model::linear::Numerics;
use engine::model::{Model, ModelConfig, ModelFiles};
use engine::runner::{Runner, RunnerOptions};

pub const VOCAB: usize = 96;

/// A splitmix generator: the same bytes everywhere, for ever.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Roughly normal with the given deviation.
    pub fn normal(&mut self, deviation: f32) -> f32 {
        let sum: f32 = (0..12)
            .map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32)
            .sum();
        (sum - 6.0) * deviation
    }

    pub fn tokens(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.below(VOCAB) as u32).collect()
    }
}

pub fn config(architecture: Architecture, hidden: usize) -> ModelConfig {
    ModelConfig {
        architecture,
        layers: 3,
        hidden,
        feed_forward: hidden * 2,
        heads: 4,
        kv_heads: 2,
        head_dim: hidden / 4,
        vocab: VOCAB,
        norm_epsilon: 1e-5,
        rope_base: 10_000.0,
        context: 4096,
    }
}

/// Tensors by their Hugging Face names.
pub fn tensors(config: &ModelConfig, seed: u64) -> HashMap<String, Tensor> {
    let mut random = Random(seed);
    let mut out = HashMap::new();
    let (query, kv) = (
        config.heads * config.head_dim,
        config.kv_heads * config.head_dim,
    );
    let mut add = |name: String, shape: &[usize], deviation: f32, mean: f32| {
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count)
            .map(|_| mean + random.normal(deviation))
            .collect();
        out.insert(name, Tensor::from_vec(values, shape, &Device::Cpu).unwrap());
    };
    let (hidden, wide) = (config.hidden, config.feed_forward);
    let spread = 1.4 / (hidden as f32).sqrt();
    add(
        "model.embed_tokens.weight".into(),
        &[config.vocab, hidden],
        0.8,
        0.0,
    );
    add("model.norm.weight".into(), &[hidden], 0.1, 1.0);
    for layer in 0..config.layers {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        for (part, rows, columns) in [
            ("self_attn.q_proj", query, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, query),
            ("mlp.gate_proj", wide, hidden),
            ("mlp.up_proj", wide, hidden),
            ("mlp.down_proj", hidden, wide),
        ] {
            add(
                name(&format!("{part}.weight")),
                &[rows, columns],
                spread,
                0.0,
            );
        }
        if config.architecture == Architecture::Qwen2 {
            add(name("self_attn.q_proj.bias"), &[query], 0.3, 0.0);
            add(name("self_attn.k_proj.bias"), &[kv], 0.3, 0.0);
            add(name("self_attn.v_proj.bias"), &[kv], 0.3, 0.0);
        }
        add(name("input_layernorm.weight"), &[hidden], 0.1, 1.0);
        add(name("post_attention_layernorm.weight"), &[hidden], 0.1, 1.0);
    }
    out
}

/// Writes `config.json` and `model.safetensors`.
pub fn write_directory(path: &Path, config: &ModelConfig, tensors: &HashMap<String, Tensor>) {
    let json = serde_json::json!({
        "model_type": config.architecture.name(),
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "intermediate_size": config.feed_forward,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "vocab_size": config.vocab,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_base,
        "max_position_embeddings": config.context,
        "tie_word_embeddings": true,
    });
    std::fs::write(path.join("config.json"), json.to_string()).unwrap();
    candle_core::safetensors::save(tensors, path.join("model.safetensors")).unwrap();
}

/// GGUF metadata of the configuration.
pub fn metadata(config: &ModelConfig) -> Vec<(String, Value)> {
    let name = config.architecture.name();
    let key = |part: &str| format!("{name}.{part}");
    vec![
        ("general.architecture".into(), Value::String(name.into())),
        (key("block_count"), Value::U32(config.layers as u32)),
        (key("embedding_length"), Value::U32(config.hidden as u32)),
        (
            key("feed_forward_length"),
            Value::U32(config.feed_forward as u32),
        ),
        (key("attention.head_count"), Value::U32(config.heads as u32)),
        (
            key("attention.head_count_kv"),
            Value::U32(config.kv_heads as u32),
        ),
        (
            key("attention.layer_norm_rms_epsilon"),
            Value::F32(config.norm_epsilon),
        ),
        (key("rope.freq_base"), Value::F32(config.rope_base)),
        (
            key("rope.dimension_count"),
            Value::U32(config.head_dim as u32),
        ),
        (key("context_length"), Value::U32(config.context as u32)),
    ]
}

/// GGUF names of the same tensors; llama's query and key rows go back to interleaved pairs, as
/// converters write them.
pub fn gguf_tensors(
    config: &ModelConfig,
    tensors: &HashMap<String, Tensor>,
) -> Vec<(String, Tensor)> {
    let mut out: Vec<(String, Tensor)> = tensors
        .iter()
        .map(|(name, tensor)| {
            let short = name
                .replace("model.embed_tokens", "token_embd")
                .replace("model.norm", "output_norm")
                .replace("model.layers", "blk")
                .replace("self_attn.q_proj", "attn_q")
                .replace("self_attn.k_proj", "attn_k")
                .replace("self_attn.v_proj", "attn_v")
                .replace("self_attn.o_proj", "attn_output")
                .replace("input_layernorm", "attn_norm")
                .replace("post_attention_layernorm", "ffn_norm")
                .replace("mlp.gate_proj", "ffn_gate")
                .replace("mlp.up_proj", "ffn_up")
                .replace("mlp.down_proj", "ffn_down");
            let rotary = short.ends_with("attn_q.weight") || short.ends_with("attn_k.weight");
            let tensor = if rotary && config.architecture == Architecture::Llama {
                let (rows, columns) = tensor.dims2().unwrap();
                let dim = config.head_dim;
                tensor
                    .reshape((rows / dim, 2, dim / 2, columns))
                    .and_then(|t| t.transpose(1, 2))
                    .and_then(|t| t.contiguous())
                    .and_then(|t| t.reshape((rows, columns)))
                    .unwrap()
            } else {
                tensor.clone()
            };
            (short, tensor)
        })
        .collect();
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

/// Writes a GGUF file with its matrices in the given type.
pub fn write_gguf(
    path: &Path,
    config: &ModelConfig,
    tensors: &HashMap<String, Tensor>,
    kind: GgmlDType,
) {
    let quantized: Vec<(String, QTensor)> = gguf_tensors(config, tensors)
        .into_iter()
        .map(|(name, tensor)| {
            let kind = if tensor.rank() == 2 {
                kind
            } else {
                GgmlDType::F32
            };
            (name, QTensor::quantize(&tensor, kind).unwrap())
        })
        .collect();
    let metadata = metadata(config);
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let tensors: Vec<(&str, &QTensor)> = quantized.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let mut file = std::fs::File::create(path).unwrap();
    gguf_file::write(&mut file, &metadata, &tensors).unwrap();
}

/// The two ways to run a model here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Cpu,
    Portable,
}

pub const BOTH: [Route; 2] = [Route::Cpu, Route::Portable];

/// Where tests run the portable path: on the CPU, or on the device that `ENGINE_TEST_DEVICE` names.
pub fn portable_device() -> local::Device {
    match std::env::var("ENGINE_TEST_DEVICE").as_deref() {
        Err(_) | Ok("cpu") => local::Device::CpuPortable,
        Ok("cuda") => local::Device::Cuda,
        Ok("metal") => local::Device::Metal,
        Ok(other) => panic!("ENGINE_TEST_DEVICE={other}: use cpu, cuda or metal"),
    }
}

pub fn load(files: &ModelFiles, path: Route) -> Box<dyn Model> {
    let device = match path {
        Route::Cpu => local::Device::Cpu,
        Route::Portable => portable_device(),
    };
    local::open_forward(files, device, Numerics::F32).unwrap()
}

/// A runner over a tiny seeded model, with the directory that holds it.
pub fn runner(
    architecture: Architecture,
    path: Route,
    options: RunnerOptions,
) -> (Runner, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let config = config(architecture, 64);
    write_directory(directory.path(), &config, &tensors(&config, 7));
    let files = ModelFiles::open(directory.path()).unwrap();
    (Runner::new(load(&files, path), options).unwrap(), directory)
}

/// A path inside the repository's fixtures; the test binary may have been built elsewhere.
pub fn fixture(name: &str) -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    PathBuf::from(package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()))
        .join("../../fixtures")
        .join(name)
}

pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}
