//! What reading early is worth.

use crate::device_model::DeviceModel;
use crate::tabular::MIB;

fn rate(device: &DeviceModel) -> f64 {
    device.read_mib_s * MIB
}

/// Reading that a token's computation hides without reading early, seconds.
fn hidden_s(device: &DeviceModel, demand_bytes: f64) -> f64 {
    device.overlap * device.compute_s.min(demand_bytes / rate(device))
}

/// Bytes that can be read beside one token's computation, over what is read there anyway: the waste per token from which
/// on reading early costs more than it saves, however good the guesses are.
#[must_use]
pub fn break_even_bytes(device: &DeviceModel, demand_bytes: f64) -> f64 {
    rate(device) * (device.compute_s - hidden_s(device, demand_bytes))
}

/// Stall that a token is spared, seconds; below 0 = it gets slower.
///
/// Without reading early a token takes the computation, and the time of its reads less what the computation hides of
/// them, as in [`DeviceModel::step_s`]. With it the useful bytes need no wait any more, and whatever of the early reads
/// does not fit beside the computation holds everything up.
#[must_use]
pub fn saved_s(
    device: &DeviceModel,
    demand_bytes: f64,
    useful_bytes: f64,
    wasted_bytes: f64,
) -> f64 {
    let rate = rate(device);
    let before = demand_bytes / rate - hidden_s(device, demand_bytes);
    let rest_bytes = demand_bytes - useful_bytes;
    let hidden = hidden_s(device, rest_bytes);
    let early_s = (useful_bytes + wasted_bytes) / rate;
    let held_up = (early_s - (device.compute_s - hidden)).max(0.0);
    before - (rest_bytes / rate - hidden + held_up)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waste_beyond_the_break_even_costs_more_than_it_saves() {
        for overlap in [0.0, 0.5, 1.0] {
            let device = DeviceModel::new(0.1, 1000.0, overlap).unwrap();
            for demand in [50.0 * MIB, 100.0 * MIB, 400.0 * MIB] {
                let limit = break_even_bytes(&device, demand);
                let saved = |useful: f64, wasted: f64| saved_s(&device, demand, useful, wasted);
                assert!(saved(demand, limit + MIB) < 0.0);
                assert!(saved(demand, (limit - MIB).max(0.0)) >= -1e-12);
                // As long as all of it fits, the waste costs nothing.
                let some = 10.0 * MIB;
                if some + some <= limit {
                    assert!((saved(some, 0.0) - saved(some, some)).abs() < 1e-12);
                }
            }
        }
        let serial = DeviceModel::new(0.1, 1000.0, 0.0).unwrap();
        assert!((break_even_bytes(&serial, 1.0) / MIB - 100.0).abs() < 1e-9);
        assert!((saved_s(&serial, 80.0 * MIB, 40.0 * MIB, 60.0 * MIB) - 0.04).abs() < 1e-12);
    }
}
