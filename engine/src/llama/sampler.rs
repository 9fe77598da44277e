//! Choosing the next token.

use std::ptr::NonNull;

use bmoe_trace::config::Sampling;

use super::sys;
use crate::error::EngineError;

/// `LLAMA_DEFAULT_SEED`: llama.cpp draws a seed of its own.
const ANY_SEED: u32 = u32::MAX;

/// Chooses tokens: greedily, or with llama.cpp's samplers.
pub struct Sampler {
    chain: Option<Chain>,
}

/// top-k, top-p, min-p, temperature and a random choice, in llama.cpp's usual order.
struct Chain {
    chain: NonNull<sys::llama_sampler>,
    candidates: Vec<sys::llama_token_data>,
}

impl Sampler {
    /// A sampler for the settings.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub fn new(sampling: &Sampling) -> Result<Self, EngineError> {
        check(sampling)?;
        let chain = (!sampling.is_greedy()).then(|| {
            // SAFETY: plain calls; the chain takes ownership of the samplers added to it.
            unsafe {
                let chain =
                    sys::llama_sampler_chain_init(sys::llama_sampler_chain_default_params());
                let parts = [
                    sys::llama_sampler_init_top_k(
                        i32::try_from(sampling.top_k).unwrap_or(i32::MAX),
                    ),
                    sys::llama_sampler_init_top_p(sampling.top_p, 1),
                    sys::llama_sampler_init_min_p(sampling.min_p, 1),
                    sys::llama_sampler_init_temp(sampling.temperature),
                    sys::llama_sampler_init_dist(sampling.seed),
                ];
                for part in parts {
                    sys::llama_sampler_chain_add(chain, part);
                }
                NonNull::new(chain).expect("llama.cpp makes a sampler or ends the process")
            }
        });
        Ok(Self { chain: chain.map(|chain| Chain { chain, candidates: Vec::new() }) })
    }

    /// A copy that goes on with the same random numbers.
    #[must_use]
    pub fn fork(&self) -> Self {
        let chain = self.chain.as_ref().map(|chain| {
            // SAFETY: the chain is ours; the copy owns copies of its parts.
            let copy = unsafe { sys::llama_sampler_clone(chain.chain.as_ptr()) };
            Chain {
                chain: NonNull::new(copy).expect("llama.cpp copies a sampler or ends the process"),
                candidates: Vec::new(),
            }
        });
        Self { chain }
    }

    /// Begins the sequence of random numbers again.
    pub fn reset(&mut self) {
        if let Some(chain) = &self.chain {
            // SAFETY: the chain is ours.
            unsafe { sys::llama_sampler_reset(chain.chain.as_ptr()) };
        }
    }

    /// The next token. Greedy: the most probable one, the smallest of equals.
    ///
    /// # Errors
    /// A logit is not a number: the weights are damaged, and no choice would mean anything.
    pub fn choose(&mut self, logits: &[f32]) -> Result<i32, EngineError> {
        let best = most_probable(logits)?;
        Ok(self.chain.as_mut().map_or(best, |chain| chain.choose(logits)))
    }
}

impl Chain {
    fn choose(&mut self, logits: &[f32]) -> i32 {
        self.candidates.clear();
        self.candidates.extend((0..).zip(logits).map(|(id, &logit)| sys::llama_token_data {
            id,
            logit,
            p: 0.0,
        }));
        let mut array = sys::llama_token_data_array {
            data: self.candidates.as_mut_ptr(),
            size: self.candidates.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: the array describes the candidates, which outlive the call; samplers only move `data`
        // within what they own or were given, and the last one selects one of `size` candidates.
        unsafe {
            sys::llama_sampler_apply(self.chain.as_ptr(), &raw mut array);
            let selected = usize::try_from(array.selected).expect("the last sampler selects");
            assert!(selected < array.size, "the selected candidate is one of them");
            let token = (*array.data.add(selected)).id;
            sys::llama_sampler_accept(self.chain.as_ptr(), token);
            token
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: made once, freed once, with its parts.
        unsafe { sys::llama_sampler_free(self.chain.as_ptr()) };
    }
}

fn check(sampling: &Sampling) -> Result<(), EngineError> {
    let refuse = |message: String| Err(EngineError::Config(message));
    if !sampling.temperature.is_finite() || sampling.temperature < 0.0 {
        return refuse(format!(
            "--temp {} is out of range: 0 (greedy) or more",
            sampling.temperature
        ));
    }
    for (option, share) in [("--top-p", sampling.top_p), ("--min-p", sampling.min_p)] {
        if !(0.0..=1.0).contains(&share) {
            return refuse(format!("{option} {share} is out of range: 0 to 1"));
        }
    }
    if sampling.seed == ANY_SEED {
        return refuse(format!(
            "--seed {} means \"any\" to llama.cpp, so the run could not be repeated; give another",
            sampling.seed
        ));
    }
    Ok(())
}

fn most_probable(logits: &[f32]) -> Result<i32, EngineError> {
    let mut best = (f32::NEG_INFINITY, 0);
    for (token, &logit) in (0..).zip(logits) {
        if logit > best.0 {
            best = (logit, token);
        } else if logit.is_nan() {
            return Err(EngineError::Llama(
                "the logits are not numbers; the model's weights are damaged".into(),
            ));
        }
    }
    Ok(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling() -> Sampling {
        Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 7 }
    }

    fn draws(sampling: &Sampling, logits: &[f32]) -> Vec<i32> {
        let mut sampler = Sampler::new(sampling).unwrap();
        (0..50).map(|_| sampler.choose(logits).unwrap()).collect()
    }

    #[test]
    fn greedy_takes_the_smallest_of_equals_and_refuses_what_is_no_number() {
        let mut sampler = Sampler::new(&Sampling::default()).unwrap();
        assert_eq!(sampler.choose(&[0.0, 2.0, f32::NEG_INFINITY, 2.0]).unwrap(), 1);
        let error = sampler.choose(&[0.0, f32::NAN]).unwrap_err().to_string();
        assert!(error.contains("not numbers"), "{error}");
        assert!(Sampler::new(&sampling()).unwrap().choose(&[f32::NAN, 1.0]).is_err());
    }

    #[test]
    fn a_seed_repeats_its_choices() {
        let logits: Vec<f32> = (0..40).map(|i| (i % 7) as f32 / 3.0).collect();
        let first = draws(&sampling(), &logits);
        assert_eq!(first, draws(&sampling(), &logits));
        assert_ne!(first, draws(&Sampling { seed: 8, ..sampling() }, &logits));
        let mut sampler = Sampler::new(&sampling()).unwrap();
        sampler.choose(&logits).unwrap();
        sampler.reset();
        let again: Vec<i32> = (0..50).map(|_| sampler.choose(&logits).unwrap()).collect();
        assert_eq!(again, first);
    }

    #[test]
    fn each_limit_leaves_what_it_says() {
        // Probabilities about 0.64, 0.23, 0.09, 0.03 ... of tokens 5, 4, 3, 2 ...
        let logits: Vec<f32> = (0..6).map(|i| i as f32).collect();
        let only = |sampling: Sampling, from: i32| {
            let drawn = draws(&sampling, &logits);
            assert!(drawn.iter().all(|t| *t >= from), "{sampling:?}: {drawn:?}");
            assert!(drawn.contains(&from), "{sampling:?}: {drawn:?}");
        };
        only(Sampling { top_k: 2, ..sampling() }, 4);
        only(Sampling { top_p: 0.9, ..sampling() }, 3);
        only(Sampling { min_p: 0.2, ..sampling() }, 4);
        only(Sampling { temperature: 0.1, ..sampling() }, 5);
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let error = |sampling| Sampler::new(&sampling).err().map(|e| e.to_string()).unwrap();
        assert!(error(Sampling { temperature: -1.0, ..sampling() }).contains("--temp -1"));
        assert!(error(Sampling { top_p: 1.5, ..sampling() }).contains("--top-p 1.5"));
        assert!(error(Sampling { min_p: f32::NAN, ..sampling() }).contains("--min-p NaN"));
        assert!(error(Sampling { seed: u32::MAX, ..sampling() }).contains("--seed"));
    }
}
