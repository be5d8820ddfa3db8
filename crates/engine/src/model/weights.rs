//! Where a model's tensors come from: a GGUF file or a safetensors directory, memory-mapped.
//!
//! Hands out named f32 tensors in one convention (GGUF names, rows = outputs, rotary halves), so
//! that every forward is written once. The only unsafe here is the memory map itself.

use std::collections::HashMap;
use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, Value};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use super::config::{Architecture, ModelConfig};
use crate::error::EngineError;

/// A model opened for reading.
#[derive(Debug)]
pub struct ModelFiles {
    /// Shape.
    pub config: ModelConfig,
    /// Path the user named.
    pub path: PathBuf,
    source: Source,
}

enum Source {
    Gguf {
        map: Mmap,
        content: Content,
    },
    SafeTensors {
        maps: Vec<(PathBuf, Mmap)>,
        index: HashMap<String, usize>,
    },
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gguf { .. } => "Gguf",
            Self::SafeTensors { .. } => "SafeTensors",
        })
    }
}

/// Maps a file into memory.
#[allow(unsafe_code)]
fn map(path: &Path) -> Result<Mmap, EngineError> {
    let file = File::open(path).map_err(|source| EngineError::io(path, source))?;
    // SAFETY: the map is read-only; a model file changed under a running engine is outside what
    // it promises, as for every engine that maps its weights.
    unsafe { Mmap::map(&file) }.map_err(|source| EngineError::io(path, source))
}

impl ModelFiles {
    /// Opens a `.gguf` file, or a directory with `config.json` and `*.safetensors`.
    ///
    /// # Errors
    /// `Io` when something cannot be read, `BadModel` when it is not a supported model.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let kind = std::fs::metadata(path).map_err(|source| EngineError::io(path, source))?;
        if kind.is_dir() {
            Self::open_directory(path)
        } else {
            Self::open_gguf(path)
        }
    }

    fn open_gguf(path: &Path) -> Result<Self, EngineError> {
        let bad = |problem: String| EngineError::bad_model(path, problem);
        let map = map(path)?;
        if map.len() < 8 || &map[..4] != b"GGUF" {
            return Err(bad("it does not begin with the GGUF magic".into()));
        }
        let content = Content::read(&mut Cursor::new(&map[..]))
            .map_err(|error| bad(format!("GGUF header: {error}")))?;
        for (name, info) in &content.tensor_infos {
            let bytes = info.shape.elem_count() / info.ggml_dtype.block_size()
                * info.ggml_dtype.type_size();
            let end = content.tensor_data_offset.saturating_add(info.offset) + bytes as u64;
            if end > map.len() as u64 {
                return Err(bad(format!(
                    "tensor {name} ends at byte {end}, the file has {} (truncated?)",
                    map.len()
                )));
            }
        }
        let vocab = content
            .tensor_infos
            .get("token_embd.weight")
            .and_then(|info| info.shape.dims().first().copied())
            .ok_or_else(|| bad("tensor token_embd.weight is missing".into()))?;
        let config = ModelConfig::from_gguf(path, &content.metadata, vocab)?;
        Ok(Self {
            config,
            path: path.into(),
            source: Source::Gguf { map, content },
        })
    }

    fn open_directory(path: &Path) -> Result<Self, EngineError> {
        let config_path = path.join("config.json");
        let text = std::fs::read_to_string(&config_path)
            .map_err(|source| EngineError::io(&config_path, source))?;
        let json: serde_json::Value = serde_json::from_str(&text)
            .map_err(|error| EngineError::bad_model(&config_path, error.to_string()))?;
        let config = ModelConfig::from_json(&config_path, &json)?;
        let mut files: Vec<PathBuf> = std::fs::read_dir(path)
            .map_err(|source| EngineError::io(path, source))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|file| file.extension().is_some_and(|ext| ext == "safetensors"))
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(EngineError::bad_model(
                path,
                "no *.safetensors file in the directory",
            ));
        }
        let mut maps = Vec::new();
        let mut index = HashMap::new();
        for file in files {
            let map = map(&file)?;
            let tensors = SafeTensors::deserialize(&map)
                .map_err(|error| EngineError::bad_model(&file, error.to_string()))?;
            for name in tensors.names() {
                index.insert(name.to_string(), maps.len());
            }
            maps.push((file, map));
        }
        Ok(Self {
            config,
            path: path.into(),
            source: Source::SafeTensors { maps, index },
        })
    }

    /// GGUF metadata, when the model is a GGUF file.
    pub fn gguf_metadata(&self) -> Option<&HashMap<String, Value>> {
        match &self.source {
            Source::Gguf { content, .. } => Some(&content.metadata),
            Source::SafeTensors { .. } => None,
        }
    }

    /// Whether a tensor exists (GGUF name).
    pub fn has(&self, name: &str) -> bool {
        match &self.source {
            Source::Gguf { content, .. } => content.tensor_infos.contains_key(name),
            Source::SafeTensors { index, .. } => index.contains_key(&upstream_name(name)),
        }
    }

    /// Reads a tensor as f32, row-major, checking its shape.
    ///
    /// Query and key projections of a llama GGUF are stored for interleaved rotary pairs; their
    /// rows are put back into halves here, so that there is one rotary convention.
    ///
    /// # Errors
    /// `BadModel` when the tensor is missing, has another shape or an unsupported type.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, EngineError> {
        let (found, values) = match &self.source {
            Source::Gguf { map, content } => self.read_gguf(map, content, name)?,
            Source::SafeTensors { maps, index } => self.read_safetensors(maps, index, name)?,
        };
        if found != shape {
            return Err(EngineError::bad_model(
                &self.path,
                format!("tensor {name} has shape {found:?}, the configuration needs {shape:?}"),
            ));
        }
        let interleaved = matches!(self.source, Source::Gguf { .. })
            && self.config.architecture == Architecture::Llama
            && (name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight"));
        if interleaved {
            return Ok(split_rotary_pairs(&values, self.config.head_dim, shape[1]));
        }
        Ok(values)
    }

    fn read_gguf(
        &self,
        map: &Mmap,
        content: &Content,
        name: &str,
    ) -> Result<(Vec<usize>, Vec<f32>), EngineError> {
        let bad = |problem: String| EngineError::bad_model(&self.path, problem);
        if !content.tensor_infos.contains_key(name) {
            return Err(bad(format!("tensor {name} is missing")));
        }
        let tensor = content
            .tensor(&mut Cursor::new(&map[..]), name, &Device::Cpu)
            .and_then(|tensor| tensor.dequantize(&Device::Cpu))
            .map_err(|error| bad(format!("tensor {name}: {error}")))?;
        let shape = tensor.dims().to_vec();
        let values = tensor
            .flatten_all()
            .and_then(|flat| flat.to_vec1::<f32>())
            .map_err(|error| bad(format!("tensor {name}: {error}")))?;
        Ok((shape, values))
    }

    fn read_safetensors(
        &self,
        maps: &[(PathBuf, Mmap)],
        index: &HashMap<String, usize>,
        name: &str,
    ) -> Result<(Vec<usize>, Vec<f32>), EngineError> {
        let upstream = upstream_name(name);
        let Some(&at) = index.get(&upstream) else {
            return Err(EngineError::bad_model(
                &self.path,
                format!("tensor {upstream} is missing"),
            ));
        };
        let (file, map) = &maps[at];
        let bad = |problem: String| EngineError::bad_model(file, problem);
        let tensors = SafeTensors::deserialize(map).map_err(|error| bad(error.to_string()))?;
        let info = tensors
            .tensor(&upstream)
            .map_err(|error| bad(format!("tensor {upstream}: {error}")))?;
        let view = info.data();
        let values = match info.dtype() {
            Dtype::F32 => view
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            Dtype::F16 => view
                .chunks_exact(2)
                .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            Dtype::BF16 => view
                .chunks_exact(2)
                .map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            other => {
                return Err(bad(format!(
                    "tensor {upstream} has type {other:?}; F32, F16 and BF16 are supported"
                )));
            }
        };
        Ok((info.shape().to_vec(), values))
    }
}

/// Rows `2j` and `2j + 1` of each head become rows `j` and `j + head_dim / 2`.
fn split_rotary_pairs(values: &[f32], head_dim: usize, columns: usize) -> Vec<f32> {
    let mut out = vec![0.0; values.len()];
    let half = head_dim / 2;
    for (row, source) in values.chunks_exact(columns).enumerate() {
        let (head, within) = (row / head_dim, row % head_dim);
        let target = head * head_dim + within / 2 + (within % 2) * half;
        out[target * columns..(target + 1) * columns].copy_from_slice(source);
    }
    out
}

/// The Hugging Face name of a tensor that we call by its GGUF name.
fn upstream_name(name: &str) -> String {
    match name {
        "token_embd.weight" => return "model.embed_tokens.weight".into(),
        "output_norm.weight" => return "model.norm.weight".into(),
        "output.weight" => return "lm_head.weight".into(),
        _ => {}
    }
    let Some((layer, part)) = name
        .strip_prefix("blk.")
        .and_then(|rest| rest.split_once('.'))
    else {
        return name.into();
    };
    let (stem, kind) = part.rsplit_once('.').unwrap_or((part, "weight"));
    let stem = match stem {
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_norm" => "input_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        other => other,
    };
    format!("model.layers.{layer}.{stem}.{kind}")
}
