//! Model shapes that the benches use, a seeded model of a given shape, and a cache with a prefix.
//!
//! Weights are random: what is measured does not depend on what a model says.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{Device, Tensor};
use engine::model::ModelConfig;
use engine::model::config::Architecture;
use kvcache::{KvCache, KvLayout, Namespace, Prefix};
use serde_json::json;

use crate::Result;
use crate::random::Random;

/// Tokens of a rubric, about those of `fixtures/plans/issue-kind.toml`.
pub const PREFIX_TOKENS: u32 = 500;

/// The shape of SmolLM2-135M.
pub fn smollm2() -> ModelConfig {
    ModelConfig {
        architecture: Architecture::Llama,
        layers: 30,
        hidden: 576,
        feed_forward: 1536,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        vocab: 49_152,
        norm_epsilon: 1e-5,
        rope_base: 100_000.0,
        context: 8192,
    }
}

/// The shape of Qwen2.5-0.5B.
pub fn qwen2() -> ModelConfig {
    ModelConfig {
        architecture: Architecture::Qwen2,
        layers: 24,
        hidden: 896,
        feed_forward: 4864,
        heads: 14,
        kv_heads: 2,
        head_dim: 64,
        vocab: 151_936,
        norm_epsilon: 1e-6,
        rope_base: 1_000_000.0,
        context: 32_768,
    }
}

/// A shape so small that its arithmetic hides nothing else.
pub fn tiny() -> ModelConfig {
    ModelConfig {
        layers: 2,
        hidden: 64,
        feed_forward: 128,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        ..smollm2()
    }
}

/// Writes a llama model without biases as `config.json` and `model.safetensors`.
///
/// # Errors
/// When the folder cannot be written.
pub fn write(folder: &Path, config: &ModelConfig, seed: u64) -> Result<()> {
    let (hidden, wide) = (config.hidden, config.feed_forward);
    let query = config.heads * config.head_dim;
    let kv = config.kv_heads * config.head_dim;
    let mut shapes = vec![
        ("model.embed_tokens".to_owned(), vec![config.vocab, hidden]),
        ("model.norm".to_owned(), vec![hidden]),
    ];
    for layer in 0..config.layers {
        let parts = [
            ("self_attn.q_proj", vec![query, hidden]),
            ("self_attn.k_proj", vec![kv, hidden]),
            ("self_attn.v_proj", vec![kv, hidden]),
            ("self_attn.o_proj", vec![hidden, query]),
            ("mlp.gate_proj", vec![wide, hidden]),
            ("mlp.up_proj", vec![wide, hidden]),
            ("mlp.down_proj", vec![hidden, wide]),
            ("input_layernorm", vec![hidden]),
            ("post_attention_layernorm", vec![hidden]),
        ];
        shapes.extend(parts.map(|(part, shape)| (format!("model.layers.{layer}.{part}"), shape)));
    }
    let mut random = Random(seed);
    let mut tensors = HashMap::new();
    for (name, shape) in shapes {
        let values = random.floats(shape.iter().product());
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?;
        tensors.insert(format!("{name}.weight"), tensor);
    }
    let shape = json!({
        "model_type": config.architecture.name(),
        "num_hidden_layers": config.layers,
        "hidden_size": hidden,
        "intermediate_size": wide,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "vocab_size": config.vocab,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_base,
        "max_position_embeddings": config.context,
        "tie_word_embeddings": true,
    });
    std::fs::write(folder.join("config.json"), shape.to_string())?;
    candle_core::safetensors::save(&tensors, folder.join("model.safetensors"))?;
    Ok(())
}

/// A cache of `blocks` blocks that holds a sealed prefix of `tokens` random tokens.
///
/// # Errors
/// When the prefix does not fit.
pub fn sealed(layout: KvLayout, blocks: u32, tokens: u32) -> Result<(KvCache, Prefix)> {
    let mut random = Random(3);
    let mut cache = KvCache::new(layout, blocks)?;
    let mut sequence = cache.admit(None, tokens)?;
    let width = (layout.kv_heads * layout.head_dim) as usize;
    for slot in cache.reserve(&mut sequence, tokens)?.slots {
        for layer in 0..layout.layers {
            cache.write(layer, slot, &random.floats(width), &random.floats(width));
        }
    }
    cache.commit(&mut sequence, tokens);
    let ids: Vec<u32> = (0..tokens).collect();
    let prefix = cache.seal(&Namespace([1; 32]), sequence, &ids)?;
    Ok((cache, prefix))
}
