//! The forward against its oracles: candle-transformers, and stored logits of the reference
//! implementation in Python.

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{llama, quantized_llama, quantized_qwen2, qwen2};
use engine::model::config::Architecture;
use engine::model::{ModelConfig, ModelFiles};
use engine::runner::{Runner, RunnerOptions};

use crate::tiny::{self, BOTH, Random};

/// Last-token logits of candle-transformers' own model.
fn oracle(config: &ModelConfig, seed: u64, tokens: &[u32]) -> Vec<f32> {
    let tensors = tiny::tensors(config, seed);
    let builder = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    let input = Tensor::new(tokens, &Device::Cpu)
        .unwrap()
        .unsqueeze(0)
        .unwrap();
    let logits = match config.architecture {
        Architecture::Llama => {
            let shape = llama::Config {
                hidden_size: config.hidden,
                intermediate_size: config.feed_forward,
                vocab_size: config.vocab,
                num_hidden_layers: config.layers,
                num_attention_heads: config.heads,
                num_key_value_heads: config.kv_heads,
                use_flash_attn: false,
                rms_norm_eps: f64::from(config.norm_epsilon),
                rope_theta: config.rope_base,
                bos_token_id: None,
                eos_token_id: None,
                rope_scaling: None,
                max_position_embeddings: config.context,
                tie_word_embeddings: true,
            };
            let mut cache = llama::Cache::new(false, DType::F32, &shape, &Device::Cpu).unwrap();
            let model = llama::Llama::load(builder, &shape).unwrap();
            model.forward(&input, 0, &mut cache).unwrap()
        }
        Architecture::Qwen2 => {
            let shape = qwen2::Config {
                vocab_size: config.vocab,
                hidden_size: config.hidden,
                intermediate_size: config.feed_forward,
                num_hidden_layers: config.layers,
                num_attention_heads: config.heads,
                num_key_value_heads: config.kv_heads,
                max_position_embeddings: config.context,
                sliding_window: config.context,
                max_window_layers: config.layers,
                tie_word_embeddings: true,
                rope_theta: f64::from(config.rope_base),
                rms_norm_eps: f64::from(config.norm_epsilon),
                use_sliding_window: false,
                hidden_act: candle_nn::Activation::Silu,
            };
            let mut model = qwen2::ModelForCausalLM::new(&shape, builder).unwrap();
            model.forward(&input, 0).unwrap()
        }
    };
    logits.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn logits_equal_candle_transformers_at_batch_one() {
    for architecture in [Architecture::Llama, Architecture::Qwen2] {
        for path in BOTH {
            let (mut runner, _directory) =
                tiny::runner(architecture, path, RunnerOptions::default());
            for len in [1, 2, 17, 150] {
                let tokens = Random(len as u64).tokens(len);
                let want = oracle(&tiny::config(architecture, 64), 7, &tokens);
                let got = runner.prompt_logits(&tokens, 1).unwrap();
                let difference = tiny::largest_difference(&got, &want);
                assert!(
                    difference < 1e-3,
                    "{architecture:?} {path:?} {len}: {difference}"
                );
            }
        }
    }
}

#[test]
fn logits_equal_the_reference_implementation() {
    for name in ["tiny-llama", "tiny-qwen2"] {
        let text = std::fs::read_to_string(tiny::fixture(&format!("reference/{name}.logits.json")))
            .unwrap();
        let stored: serde_json::Value = serde_json::from_str(&text).unwrap();
        let tokens: Vec<u32> = serde_json::from_value(stored["tokens"].clone()).unwrap();
        let want: Vec<Vec<f32>> = serde_json::from_value(stored["logits"].clone()).unwrap();
        assert!(want.len() >= 3);
        let files = ModelFiles::open(&tiny::fixture(&format!("reference/{name}"))).unwrap();
        for path in BOTH {
            let mut runner =
                Runner::new(tiny::load(&files, path), RunnerOptions::default()).unwrap();
            let got = runner.prompt_logits(&tokens, want.len()).unwrap();
            let difference = tiny::largest_difference(&got, &want.concat());
            assert!(difference < 1e-3, "{name} {path:?}: {difference}");
        }
    }
}

/// Every GGUF type that the manifest may name is read as candle itself dequantises it.
#[test]
fn gguf_files_of_every_type_equal_candles_quantized_models() {
    let kinds = [
        GgmlDType::F32,
        GgmlDType::F16,
        GgmlDType::BF16,
        GgmlDType::Q8_0,
        GgmlDType::Q4_0,
        GgmlDType::Q4_1,
        GgmlDType::Q5_0,
        GgmlDType::Q5_1,
        GgmlDType::Q4K,
        GgmlDType::Q5K,
        GgmlDType::Q6K,
    ];
    let directory = tempfile::tempdir().unwrap();
    for architecture in [Architecture::Llama, Architecture::Qwen2] {
        let config = tiny::config(architecture, 256);
        let tensors = tiny::tensors(&config, 11);
        for kind in kinds {
            let path = directory.path().join("model.gguf");
            tiny::write_gguf(&path, &config, &tensors, kind);
            let files = ModelFiles::open(&path).unwrap();
            assert_eq!(files.config, config);
            let tokens = Random(5).tokens(12);
            let mut runner = Runner::new(
                tiny::load(&files, tiny::Route::Cpu),
                RunnerOptions::default(),
            )
            .unwrap();
            let got = runner.prompt_logits(&tokens, 1).unwrap();
            let want = quantized_oracle(&path, architecture, &tokens);
            // Candle rounds activations to 8 bits for quantised weights; f32 weights stay exact.
            let scale = want.iter().fold(0.0f32, |max, value| max.max(value.abs()));
            let bound = if kind == GgmlDType::F32 {
                1e-3
            } else {
                0.06 * scale
            };
            let difference = tiny::largest_difference(&got, &want);
            assert!(
                difference < bound,
                "{architecture:?} {kind:?}: {difference} of {scale}"
            );
        }
    }
}

fn quantized_oracle(
    path: &std::path::Path,
    architecture: Architecture,
    tokens: &[u32],
) -> Vec<f32> {
    let mut file = std::fs::File::open(path).unwrap();
    let content = candle_core::quantized::gguf_file::Content::read(&mut file).unwrap();
    let input = Tensor::new(tokens, &Device::Cpu)
        .unwrap()
        .unsqueeze(0)
        .unwrap();
    let logits = match architecture {
        Architecture::Llama => {
            quantized_llama::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)
                .unwrap()
                .forward(&input, 0)
                .unwrap()
        }
        Architecture::Qwen2 => {
            quantized_qwen2::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)
                .unwrap()
                .forward(&input, 0)
                .unwrap()
        }
    };
    logits.flatten_all().unwrap().to_vec1().unwrap()
}
