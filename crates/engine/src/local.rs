//! Opens a model by name or path and joins its pieces into a backend.

use std::path::{Path, PathBuf};

use crate::error::EngineError;
use crate::infer::{LocalGauge, LocalInfer, identify};
use crate::model::cpu::{self, CpuModel};
use crate::model::linear::Numerics;
use crate::model::portable::{self, PortableModel};
use crate::model::{Model, ModelFiles};
use crate::models::LocalModel;
use crate::prompt::PromptTemplate;
use crate::runner::{Runner, RunnerOptions};
use crate::tokenizer::Tokenizer;

/// Where the forward runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// The fast CPU path.
    #[default]
    Cpu,
    /// The portable path on the CPU: slow, the yardstick of the others.
    CpuPortable,
    /// The portable path on the first CUDA device; needs the feature `cuda`.
    Cuda,
    /// The portable path on the first Metal device; needs the feature `metal`.
    Metal,
}

/// Opens a verified local model. `numerics` is the fast CPU path's; portable paths use f32.
///
/// # Errors
/// `BadModel` or `Io` when files are unusable, `DeviceNotBuilt` when the device is not in this
/// build, `DeviceUnavailable` when it cannot be opened.
pub fn open(
    model: &LocalModel,
    device: Device,
    numerics: Numerics,
    options: RunnerOptions,
) -> Result<LocalInfer, EngineError> {
    // A device that cannot be had is told before a file is read.
    let forward_device = candle_device(device)?;
    let files = ModelFiles::open(&model.path)?;
    let (tokenizer, template) = open_text(&files)?;
    let forward = load(&files, forward_device, numerics)?;
    let digest = digest_of(model)?;
    let runner = Runner::new(forward, options)?;
    Ok(LocalInfer::new(
        runner,
        tokenizer,
        template,
        &model.name,
        digest,
    ))
}

/// Opens what of a local model measures without asking: its tokenizer and template, no weight.
///
/// # Errors
/// As [`open`].
pub fn open_gauge(
    model: &LocalModel,
    device: Device,
    numerics: Numerics,
) -> Result<LocalGauge, EngineError> {
    let tier = match candle_device(device)? {
        None => cpu::tier(numerics),
        Some(device) => portable::tier(&device),
    };
    let files = ModelFiles::open(&model.path)?;
    let (tokenizer, template) = open_text(&files)?;
    let digest = digest_of(model)?;
    let (architecture, name) = (files.config.architecture, &model.name);
    let identity = identify(&tokenizer, &template, name, digest, architecture, &tier);
    let context = files.config.context;
    Ok(LocalGauge::new(tokenizer, template, identity, context))
}

fn digest_of(model: &LocalModel) -> Result<[u8; 32], EngineError> {
    let digest = blake3::Hash::from_hex(&model.blake3)
        .map_err(|error| EngineError::bad_model(&model.path, error.to_string()))?;
    Ok(*digest.as_bytes())
}

/// Reads the tokenizer and the chat template of an opened model, and none of its weights.
///
/// # Errors
/// Tokenizer or template trouble.
pub fn open_text(files: &ModelFiles) -> Result<(Tokenizer, PromptTemplate), EngineError> {
    match files.gguf_metadata() {
        Some(metadata) => {
            let tokenizer = Tokenizer::from_gguf(metadata)?;
            let template = PromptTemplate::from_gguf(metadata)?;
            Ok((tokenizer, template))
        }
        None => {
            let tokenizer = Tokenizer::from_file(&files.path.join("tokenizer.json"))?;
            let template = PromptTemplate::from_folder(&files.path)?;
            Ok((tokenizer, template))
        }
    }
}

/// Loads an opened model's weights for a device.
///
/// # Errors
/// `BadModel` when a tensor is unusable, `Tensor` when the device does not take it, else as for
/// [`open`].
pub fn open_forward(
    files: &ModelFiles,
    device: Device,
    numerics: Numerics,
) -> Result<Box<dyn Model>, EngineError> {
    load(files, candle_device(device)?, numerics)
}

fn load(
    files: &ModelFiles,
    device: Option<candle_core::Device>,
    numerics: Numerics,
) -> Result<Box<dyn Model>, EngineError> {
    Ok(match device {
        None => Box::new(CpuModel::load(files, numerics)?),
        Some(device) => Box::new(PortableModel::load(files, &device)?),
    })
}

/// The candle device of a portable path; none for the fast CPU path.
fn candle_device(device: Device) -> Result<Option<candle_core::Device>, EngineError> {
    let (device, built, opened) = match device {
        Device::Cpu => return Ok(None),
        Device::CpuPortable => return Ok(Some(candle_core::Device::Cpu)),
        Device::Cuda => (
            "cuda",
            cfg!(feature = "cuda"),
            candle_core::Device::new_cuda(0),
        ),
        Device::Metal => (
            "metal",
            cfg!(feature = "metal"),
            candle_core::Device::new_metal(0),
        ),
    };
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(_) if !built => Err(EngineError::DeviceNotBuilt { device }),
        Err(source) => Err(EngineError::DeviceUnavailable { device, source }),
    }
}

/// Identifies a safetensors directory by the bytes of its files, in name order.
///
/// # Errors
/// `Io` when a file cannot be read, `BadModel` when there are none.
pub fn directory_model(path: &Path) -> Result<LocalModel, EngineError> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(|source| EngineError::io(path, source))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|file| {
            file.extension()
                .is_some_and(|kind| kind == "json" || kind == "safetensors")
        })
        .collect();
    names.sort();
    if names.is_empty() {
        return Err(EngineError::bad_model(
            path,
            "the directory holds no model files",
        ));
    }
    let mut hasher = blake3::Hasher::new_derive_key("engine model directory v1");
    let mut bytes = 0;
    for name in &names {
        let mut file = blake3::Hasher::new();
        file.update_mmap(name)
            .map_err(|source| EngineError::io(name, source))?;
        let text = name
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
        hasher.update(file.finalize().as_bytes());
        bytes += std::fs::metadata(name)
            .map_err(|source| EngineError::io(name, source))?
            .len();
    }
    Ok(LocalModel {
        name: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        path: path.into(),
        blake3: hasher.finalize().to_hex().to_string(),
        bytes,
        verified: false,
    })
}
