use super::*;
use mainstay_oci_image::ImageConfig;
use rstest::rstest;

fn image(text: &str) -> ImageConfig {
    ImageConfig::parse(format!(r#"{{"config":{text}}}"#).as_bytes()).expect("a configuration")
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[rstest]
#[case("entry -e", "cmd", None, None, "entry -e cmd")]
#[case("entry", "cmd", None, Some("mine a"), "entry mine a")]
#[case("entry", "cmd", Some("other"), None, "other")]
#[case("entry", "cmd", Some("other"), Some("x y"), "other x y")]
#[case("entry", "cmd", Some(""), Some("sh -c"), "sh -c")]
#[case("", "cmd arg", None, None, "cmd arg")]
#[case("", "cmd arg", None, Some("sh"), "sh")]
#[case("entry", "cmd", None, Some(""), "entry")]
fn entrypoint_and_command_go_together_as_in_docker(
    #[case] entrypoint: &str,
    #[case] cmd: &str,
    #[case] own_entrypoint: Option<&str>,
    #[case] own_command: Option<&str>,
    #[case] expected: &str,
) {
    let mut config = ImageConfig::default();
    (config.config.entrypoint, config.config.cmd) = (words(entrypoint), words(cmd));
    let overrides = Overrides {
        entrypoint: own_entrypoint.map(words),
        command: own_command.map(words),
        ..Overrides::default()
    };
    let process = ImageProcess::resolve(&config, &overrides).expect("a process");
    assert_eq!(process.command, words(expected));
}

#[test]
fn what_the_caller_says_wins_and_the_rest_is_the_images() {
    let config = image(
        r#"{"Cmd":["a"],"Env":["PATH=/bin","A=1=2","EMPTY=","BARE"],"User":"www:33","WorkingDir":"srv/../../data/.",
            "StopSignal":"SIGQUIT","Volumes":{"/var/lib/x":{},"/../../up":{}}}"#,
    );
    let process = ImageProcess::resolve(&config, &Overrides::default()).expect("a process");
    let variables = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>()
    };
    assert_eq!(process.env, variables(&[("PATH", "/bin"), ("A", "1=2"), ("EMPTY", ""), ("BARE", "")]));
    assert_eq!(process.workdir, Some("/data".into()));
    assert_eq!(process.user.as_deref(), Some("www:33"));
    assert_eq!(process.stop_signal.as_deref(), Some("SIGQUIT"));
    assert_eq!(process.volumes, BTreeSet::from(["/var/lib/x".into(), "/up".into()]));

    let overrides = Overrides {
        env: variables(&[("A", "mine"), ("B", "new")]),
        workdir: Some("/w".into()),
        user: Some("7".to_owned()),
        stop_signal: Some("INT".to_owned()),
        ..Overrides::default()
    };
    let process = ImageProcess::resolve(&config, &overrides).expect("a process");
    assert_eq!(process.env["A"], "mine");
    assert_eq!(process.env["B"], "new");
    assert_eq!(process.env["PATH"], "/bin");
    assert_eq!((process.workdir, process.user.as_deref()), (Some("/w".into()), Some("7")));
    assert_eq!(process.stop_signal.as_deref(), Some("INT"));
}

#[rstest]
#[case(r#"{}"#, "name a command")]
#[case(r#"{"Entrypoint":[""]}"#, "must not be empty")]
#[case(r#"{"Cmd":["a"],"Env":["=x"]}"#, "NAME=VALUE")]
#[case(r#"{"Cmd":["a"],"WorkingDir":"/a\u0000b"}"#, "zero byte")]
#[case(r#"{"Cmd":["a"],"Volumes":{"/..":{}}}"#, "must not be the root")]
fn what_cannot_be_run_is_said_in_a_sentence(#[case] config: &str, #[case] expected: &str) {
    let error = ImageProcess::resolve(&image(config), &Overrides::default()).expect_err("impossible");
    assert!(error.to_string().contains(expected), "{error}");
}
