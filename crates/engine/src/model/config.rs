//! The shape of a model, read from GGUF metadata or a Hugging Face `config.json`.
//!
//! Upstream names (`num_key_value_heads`, `llama.attention.head_count_kv`) stop at this file.

use std::collections::HashMap;
use std::path::Path;

use candle_core::quantized::gguf_file::Value;
use kvcache::KvLayout;

use crate::error::EngineError;

/// Slots per block of the paged pool.
const BLOCK_SLOTS: u32 = 16;

/// Architectures with a forward of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama family (SmolLM2): no projection biases.
    Llama,
    /// Qwen2 family (Qwen2.5): biases on query, key and value.
    Qwen2,
}

impl Architecture {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "llama" => Some(Self::Llama),
            "qwen2" => Some(Self::Qwen2),
            _ => None,
        }
    }

    /// The name used by model files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
        }
    }
}

/// Shape of a decoder-only transformer with grouped-query attention, RMS norms and SwiGLU.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Which family.
    pub architecture: Architecture,
    /// Transformer layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward part.
    pub feed_forward: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Rows of the output matrix.
    pub vocab: usize,
    /// Epsilon of the RMS norms.
    pub norm_epsilon: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Positions the model was trained for.
    pub context: usize,
}

impl ModelConfig {
    /// Layout of its KV cache in f32.
    ///
    /// # Errors
    /// `CacheError` when a dimension is zero or too large.
    pub fn kv_layout(&self) -> Result<KvLayout, EngineError> {
        Ok(KvLayout::new(
            self.layers as u32,
            self.kv_heads as u32,
            self.head_dim as u32,
            BLOCK_SLOTS,
        )?)
    }

    /// Columns of the fused query/key/value projection.
    pub fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// FLOPs of the linear layers per token (without the output matrix).
    pub fn linear_flops_per_token(&self) -> u64 {
        let attention = self.hidden * self.qkv_width() + self.heads * self.head_dim * self.hidden;
        let feed_forward = 3 * self.hidden * self.feed_forward;
        2 * (self.layers * (attention + feed_forward)) as u64
    }

    /// Reads the shape from GGUF metadata; `vocab` comes from the embedding's shape.
    ///
    /// # Errors
    /// `BadModel` naming the missing or unsupported key.
    pub fn from_gguf(
        path: &Path,
        metadata: &HashMap<String, Value>,
        vocab: usize,
    ) -> Result<Self, EngineError> {
        let bad = |problem: String| EngineError::bad_model(path, problem);
        let name = metadata
            .get("general.architecture")
            .and_then(|value| value.to_string().ok())
            .ok_or_else(|| bad("metadata key general.architecture is missing".into()))?;
        let architecture = Architecture::parse(name).ok_or_else(|| unsupported(path, name))?;
        let integer = |key: &str| -> Result<usize, EngineError> {
            let key = format!("{name}.{key}");
            let value = metadata
                .get(&key)
                .ok_or_else(|| bad(format!("metadata key {key} is missing")))?;
            unsigned(value).ok_or_else(|| bad(format!("metadata key {key} is not a whole number")))
        };
        let float = |key: &str| {
            metadata
                .get(&format!("{name}.{key}"))
                .and_then(|value| value.to_f32().ok())
        };
        if let Some(kind) = metadata
            .get(&format!("{name}.rope.scaling.type"))
            .and_then(|value| value.to_string().ok())
            && kind != "none"
        {
            return Err(bad(format!("rope scaling `{kind}` is not supported")));
        }
        let heads = integer("attention.head_count")?;
        let hidden = integer("embedding_length")?;
        if heads == 0 {
            return Err(bad("attention.head_count is 0".into()));
        }
        let config = Self {
            architecture,
            layers: integer("block_count")?,
            hidden,
            feed_forward: integer("feed_forward_length")?,
            heads,
            kv_heads: integer("attention.head_count_kv").unwrap_or(heads),
            head_dim: integer("attention.key_length").unwrap_or(hidden / heads),
            vocab,
            norm_epsilon: float("attention.layer_norm_rms_epsilon").unwrap_or(1e-6),
            rope_base: float("rope.freq_base").unwrap_or(10_000.0),
            context: integer("context_length")?,
        };
        config.check(path)
    }

    /// Reads the shape from a `config.json`.
    ///
    /// # Errors
    /// `BadModel` naming the missing or unsupported key.
    pub fn from_json(path: &Path, json: &serde_json::Value) -> Result<Self, EngineError> {
        let bad = |problem: String| EngineError::bad_model(path, problem);
        let name = json["model_type"].as_str().unwrap_or_default();
        let architecture = Architecture::parse(name).ok_or_else(|| unsupported(path, name))?;
        let integer = |key: &str| -> Result<usize, EngineError> {
            json[key]
                .as_u64()
                .map(|value| value as usize)
                .ok_or_else(|| bad(format!("key {key} is missing or not a whole number")))
        };
        if json["rope_scaling"].is_object() {
            return Err(bad("rope_scaling is not supported".into()));
        }
        if json["use_sliding_window"].as_bool() == Some(true) {
            return Err(bad("use_sliding_window is not supported".into()));
        }
        let heads = integer("num_attention_heads")?;
        let hidden = integer("hidden_size")?;
        if heads == 0 {
            return Err(bad("num_attention_heads is 0".into()));
        }
        let config = Self {
            architecture,
            layers: integer("num_hidden_layers")?,
            hidden,
            feed_forward: integer("intermediate_size")?,
            heads,
            kv_heads: integer("num_key_value_heads").unwrap_or(heads),
            head_dim: integer("head_dim").unwrap_or(hidden / heads),
            vocab: integer("vocab_size")?,
            norm_epsilon: json["rms_norm_eps"].as_f64().unwrap_or(1e-6) as f32,
            rope_base: json["rope_theta"].as_f64().unwrap_or(10_000.0) as f32,
            context: integer("max_position_embeddings")?,
        };
        config.check(path)
    }

    fn check(self, path: &Path) -> Result<Self, EngineError> {
        let bad = |problem: String| Err(EngineError::bad_model(path, problem));
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return bad(format!(
                "{} query heads are not a multiple of {} key/value heads",
                self.heads, self.kv_heads
            ));
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) {
            return bad(format!(
                "head width {} is not an even number above 0",
                self.head_dim
            ));
        }
        if self.layers == 0 || self.hidden == 0 || self.feed_forward == 0 || self.vocab == 0 {
            return bad("a dimension is 0".into());
        }
        Ok(self)
    }
}

fn unsupported(path: &Path, name: &str) -> EngineError {
    EngineError::BadModel {
        path: path.into(),
        problem: format!("architecture `{name}` is not supported"),
        cure: "use a model of architecture llama or qwen2".into(),
    }
}

fn unsigned(value: &Value) -> Option<usize> {
    match value {
        Value::U8(v) => Some(usize::from(*v)),
        Value::U16(v) => Some(usize::from(*v)),
        Value::U32(v) => usize::try_from(*v).ok(),
        Value::U64(v) => usize::try_from(*v).ok(),
        Value::I32(v) => usize::try_from(*v).ok(),
        Value::I64(v) => usize::try_from(*v).ok(),
        _ => None,
    }
}
