mod common;
use bmoe_cache::*;
#[test]
fn probe() {
    let (sizes, events) = common::qwen3().unwrap();
    for kind in PolicyKind::ALL {
        for mib in [250u64,500,750,1000,1500,2000,2500,3000,4000,6000,8000] {
            let mut out = Vec::new();
            for o in [Overshoot::Never, Overshoot::KeepUntilNextEvent] {
                let mut c = Cache::new(sizes.clone(), mib << 20, kind.build(&sizes, 1)).with_overshoot(o);
                let (mut h, mut n) = (0, 0);
                let mut peak = 0;
                for a in &events { let e = c.event(a.layer, &a.experts); if a.decode { h += e.hits.len(); n += e.hits.len()+e.misses.len(); } 
                   peak = peak.max(c.resident_bytes()); }
                out.push((format!("{:.3}", 100.0*h as f64/n as f64), peak>>20));
            }
            println!("{kind:10} {mib:5} {:?} {}", out, if out[0].0 != out[1].0 {"DIFF"} else {""});
        }
    }
}
