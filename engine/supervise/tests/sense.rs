//! Devices made of files.

use std::fs;
use std::path::Path;

use bmoe_supervise::sense::Device;
use bmoe_trace::supervised::Sample;

fn sample(files: &[(&str, &str)], engine: Option<u32>) -> Sample {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Device::find(root.path()).sample(engine)
}

#[test]
fn a_phone_tells_its_temperatures_clocks_and_battery() {
    let thermal = "sys/class/thermal/thermal_zone";
    let files: Vec<(String, &str)> = [
        ("0", "cpu-0-0", "41200"),
        ("1", "cpu-1-3", "47900"),
        // The constant at which the hardware throttles.
        ("2", "cpu-hw-trip-0", "95000"),
        ("10", "battery", "61000"),
        ("11", "gpuss-0", "52000"),
        ("12", "cpu-1-4", "-274000"),
    ]
    .iter()
    .flat_map(|(n, name, temp)| {
        [(format!("{thermal}{n}/type"), *name), (format!("{thermal}{n}/temp"), *temp)]
    })
    .collect();
    let mut files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
    let cpufreq = "sys/devices/system/cpu/cpufreq";
    let policies = [
        (format!("{cpufreq}/policy0/scaling_max_freq"), "1900000\n"),
        (format!("{cpufreq}/policy0/scaling_cur_freq"), "300000\n"),
        (format!("{cpufreq}/policy7/scaling_max_freq"), "2400000\n"),
        (format!("{cpufreq}/policy7/scaling_cur_freq"), "2400000\n"),
    ];
    files.extend(policies.iter().map(|(path, text)| (path.as_str(), *text)));
    files.extend([
        ("sys/class/power_supply/battery/type", "Battery\n"),
        ("sys/class/power_supply/battery/capacity", "83\n"),
        ("sys/class/power_supply/battery/temp", "314\n"),
        ("sys/class/power_supply/usb/type", "USB\n"),
        (
            "proc/meminfo",
            "MemTotal: 11000 kB\nMemAvailable:  4096 kB\nSwapTotal: 900 kB\nSwapFree: 100 kB\n",
        ),
        ("proc/vmstat", "pswpin 7\npswpout 9\npswpin_zero 5\n"),
        ("proc/loadavg", "3.50 1 1 1/2 3\n"),
        ("proc/42/status", "Name: x\nVmRSS:\t 2048 kB\n"),
        ("proc/42/stat", "42 (bmoe engine) S 1 2 3 4 5 6 7 8 77 10 11\n"),
    ]);
    let sample = sample(&files, Some(42));
    assert_eq!(sample.cpu_temperature_millic, Some(47_900));
    let names: Vec<&str> = sample.temperatures_millic.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["cpu-0-0", "cpu-1-3", "battery", "gpuss-0"]);
    assert_eq!(sample.max_clocks_khz, [1_900_000, 2_400_000]);
    assert_eq!(sample.clocks_khz, [300_000, 2_400_000]);
    assert_eq!((sample.battery_pct, sample.battery_temperature_millic), (Some(83), Some(31_400)));
    assert_eq!(sample.mem_available_bytes, Some(4096 << 10));
    assert_eq!(sample.swap_used_bytes, Some(800 << 10));
    assert_eq!((sample.swap_in_pages, sample.swap_out_pages), (Some(7), Some(9)));
    assert_eq!((sample.rss_bytes, sample.major_faults), (Some(2048 << 10), Some(77)));
    assert_eq!(sample.load_average, Some(3.5));
    // Nobody lets the shell of a phone read its pressure.
    assert_eq!((sample.psi_memory_some_pct, sample.psi_io_some_pct), (None, None));
}

#[test]
fn a_machine_without_sensors_tells_nothing_of_them() {
    let pressure = "some avg10=1.25 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.50 total=1\n";
    let sample = sample(&[("proc/pressure/memory", pressure)], None);
    let expected =
        Sample { unix_ms: sample.unix_ms, psi_memory_some_pct: Some(1.25), ..Sample::default() };
    assert_eq!(sample, expected);
}

#[test]
fn this_machine_tells_its_memory() {
    let sample = Device::find(Path::new("/")).sample(Some(std::process::id()));
    assert!(sample.mem_available_bytes.unwrap() > 0 && sample.rss_bytes.unwrap() > 0);
    assert!(sample.unix_ms > 1_700_000_000_000);
}
