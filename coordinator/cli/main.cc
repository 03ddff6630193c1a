// trireme: the command line. One thread; each subcommand has its own file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "compress/commands/codec_commands.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/control.h"
#include "coordinator/cli/control_commands.h"
#include "coordinator/cli/exit_codes.h"
#include "coordinator/cli/manual_commands.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/suggestion.h"
#include "coordinator/client/grpc_log.h"
#include "runtime/base/durable.h"

namespace trireme::cli {
namespace {

constexpr const char* kJsonHelp = "the answer as JSON";
constexpr const char* kSetHelp = "override a field of the job, as in training.steps=100";

struct Everything {
  RunOptions run;
  PlanOptions plan;
  SlurmScriptOptions slurm_script;
  ControlOptions plan_control;
  GenerateOptions generate;
  BenchOptions bench;
  ValidateOptions validate;
  CheckpointOptions checkpoint;
  bool version_json = false;
  int code = kOk;
};

void AddJob(CLI::App& command, std::string& job, std::vector<std::string>& overrides) {
  command.add_option("job", job, "job file (YAML; docs/job_spec.md)")
      ->required()
      ->type_name("JOB.yaml");
  command.add_option("--set", overrides, kSetHelp)
      ->type_name("a.b=c")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void AddRanks(CLI::App& command, int& ranks) {
  command
      .add_option("-n,--ranks", ranks,
                  "MPI ranks; default: resources.ranks of the job, or the product of its sizes")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
}

void AddRun(CLI::App& app, Everything& all) {
  CLI::App* run = app.add_subcommand("run", "run a job on this machine");
  AddJob(*run, all.run.job, all.run.overrides);
  AddRanks(*run, all.run.ranks);
  run->add_option(
         "--resume", all.run.resume,
         "go on from a checkpoint folder; without a value, or auto: the newest of the last run")
      ->expected(0, 1)
      ->default_str("auto")
      ->type_name("[auto|DIR]");
  run->add_option("--run-dir", all.run.run_dir, "run folder; default: runs/NAME-DATE-TIME")
      ->type_name("DIR");
  run->add_option("--grace", all.run.grace_seconds,
                  "seconds from Ctrl-C until ranks that have not saved are killed; default: a "
                  "minute beyond three steps and the deadline")
      ->type_name("SECONDS")
      ->check([](const std::string& text) {
        const double seconds = std::strtod(text.c_str(), nullptr);  // NaN is in no range
        return seconds >= 1 && seconds <= 86400 ? "" : "expected 1 to 86400 seconds";
      });
  run->add_flag("--bind-cores", all.run.bind_cores,
                "pin each rank to its cores (only if nothing else runs here)");
  run->add_flag("--json", all.run.json,
                "events and progress as lines of JSON like those of watch, then the end as one");
  run->footer(
      "Ctrl-C saves a checkpoint and stops (exit code 75); a second one kills.\n\n"
      "Examples:\n"
      "  trireme run deploy/examples/demo.yaml -n 4\n"
      "  trireme run job.yaml -n 8 --set training.steps=100 --set parallelism.schedule=zb-h1\n"
      "  trireme run job.yaml -n 2 --resume          # the last run, on other ranks too\n\n"
      "Exit codes: 0 ok, 1 internal, 2 bad input, 3 plan does not fit, 4 job failed, 5 cancelled,\n"
      "75 stopped with a checkpoint.");
  run->callback([run, &all] {
    // A bare --resume gives no value to the option.
    if (run->count("--resume") > 0 && all.run.resume.empty()) all.run.resume = "auto";
    all.code = RunRun(all.run);
  });
}

void AddPlan(CLI::App& app, Everything& all) {
  CLI::App* plan =
      app.add_subcommand("plan", "show what a job would do: stages, bytes, schedule, bubble");
  AddJob(*plan, all.plan.job, all.plan.overrides);
  AddRanks(*plan, all.plan.ranks);
  CLI::Option* json = plan->add_flag("--json", all.plan.json,
                                     "the plan, or the answer of --fit, as JSON; a plan without "
                                     "its instructions");
  CLI::Option* programs =
      plan->add_flag("--programs", all.plan.programs,
                     "the instructions as well (a gigabyte for hundreds of stages)")
          ->needs(json);
  CLI::Option* out =
      plan->add_option("--out", all.plan.out, "write the plan (protobuf)")->type_name("FILE");
  CLI::Option* svg =
      plan->add_option("--svg", all.plan.svg, "write the schedule as a picture")->type_name("FILE");
  CLI::Option* remote =
      plan->add_flag("--remote", all.plan.remote,
                     "ask the coordinator what it would say to a submission; nothing is queued")
          ->excludes(out)
          ->excludes(svg);
  plan->add_option("--fit", all.plan.fit,
                   "instead of the plan: the smallest change by which no rank needs more than SIZE "
                   "(2GiB, 1500MB); exit code 3 if there is none")
      ->type_name("SIZE")
      ->excludes(out)
      ->excludes(svg)
      ->excludes(programs)
      ->excludes(remote);
  AddReach(*plan, all.plan_control);
  plan->footer(
      "Examples:\n"
      "  trireme plan job.yaml --ranks 8\n"
      "  trireme plan job.yaml --ranks 64 --set parallelism.pipeline_parallel_size=8 --svg s.svg\n"
      "  trireme plan job.yaml --ranks 8 --fit 2GiB");
  plan->callback([&all] {
    all.plan_control.json = all.plan.json;
    all.code = all.plan.remote ? RunRemotePlan(all.plan_control, all.plan) : RunPlan(all.plan);
  });
}

void AddSlurmScript(CLI::App& app, Everything& all) {
  SlurmScriptOptions& options = all.slurm_script;
  CLI::App* script = app.add_subcommand("slurm-script", "write a job as a batch file for Slurm");
  AddJob(*script, options.job, options.overrides);
  AddRanks(*script, options.ranks);
  script->add_option("-N,--nodes", options.nodes, "nodes; default: as Slurm finds room")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  script->add_option("--partition", options.partition, "Slurm's partition; default: its own")
      ->type_name("P");
  script->add_option("--account", options.account, "account that pays")->type_name("A");
  script->add_option("--time", options.time, "time limit, as in 90 (minutes) or 12:00:00")
      ->type_name("T");
  script
      ->add_option("--sbatch", options.sbatch,
                   "more options of sbatch as they are, as in '--qos=high' (again for more)")
      ->type_name("OPTIONS")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  script->add_option("-o,--out", options.out, "write it there, not to the terminal")
      ->type_name("FILE");
  script->add_flag("--json", options.json, "the script and the file's name as JSON");
  script->footer(
      "Before its time limit the job saves a checkpoint, is queued again and goes on.\n\n"
      "Examples:\n"
      "  trireme slurm-script job.yaml -N 2 --time 12:00:00 -o job.sbatch && sbatch job.sbatch\n"
      "  sbatch job.sbatch --set training.steps=5000     # options of trireme-worker follow");
  script->callback([&all] { all.code = RunSlurmScript(all.slurm_script); });
}

void AddGenerate(CLI::App& app, Everything& all) {
  GenerateOptions& options = all.generate;
  CLI::App* generate = app.add_subcommand("generate", "continue a text from a checkpoint");
  generate->add_option("--checkpoint", options.checkpoint, "checkpoint or run folder")
      ->required()
      ->type_name("DIR");
  generate->add_option("--prompt", options.prompt, "text to continue, at least one character")
      ->type_name("TEXT");
  generate->add_option("--tokens", options.tokens, "tokens to add")->type_name("N");
  generate->add_option("--temperature", options.temperature, "softmax temperature; 0: greedy")
      ->type_name("X");
  generate->add_option("--top-k", options.top_k, "draw from the k likeliest tokens; 0: all")
      ->type_name("K");
  generate->add_option("--seed", options.seed, "seed of the draw")->type_name("N");
  generate->add_flag("--json", options.json, kJsonHelp);
  generate->footer(
      "What is not given is as in the job of the checkpoint (generation, seed).\n\n"
      "Examples:\n"
      "  trireme generate --checkpoint runs/demo-20250101-120000 --prompt 'In the beginning'");
  generate->callback([&all] { all.code = RunGenerate(all.generate); });
}

void AddBench(CLI::App& app, Everything& all) {
  BenchOptions& options = all.bench;
  CLI::App* bench =
      app.add_subcommand("bench", "each operator beside what this machine does at best");
  bench->add_option("--dtype", options.dtype, "what the operators compute in; default: both")
      ->check(CLI::IsMember({"f32", "bf16", "both"}))
      ->type_name("TYPE");
  bench->add_option("--threads", options.threads, "default: one per core")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  bench
      ->add_option("--seconds", options.seconds,
                   "of all of it, at least a run or two of each operator; default: 50")
      ->check(CLI::Range(1, 3600))
      ->type_name("SECONDS");
  bench->add_option("--only", options.only, "those that have TEXT in their name")
      ->type_name("TEXT");
  bench->add_flag("--json", options.json, kJsonHelp);
  bench->footer(
      "The operators of GPT-2 124M, forward (F), input-grad (I) and weight-grad (W), at 1,024 "
      "rows;\n"
      "attention at 256 and 1,024 tokens a sample. Each with its share of the speed of a square\n"
      "product of its type or, where memory bounds it, of a triad, both measured in between. No\n"
      "other work should be on the machine. Progress goes to the terminal's stderr. A run or two "
      "of\n"
      "each, with what they are run on, is the least: some 8 seconds on two cores.\n\n"
      "Examples:\n"
      "  trireme bench\n"
      "  trireme bench --dtype bf16 --only attention --seconds 10");
  bench->callback([&all] { all.code = RunBench(all.bench); });
}

void AddCheckpoint(CLI::App& app, Everything& all) {
  CLI::App* checkpoint = app.add_subcommand("checkpoint", "look at checkpoints");
  checkpoint->require_subcommand(1);
  CLI::App* list = checkpoint->add_subcommand("list", "the checkpoints of a run");
  list->add_option("folder", all.checkpoint.folder, "run folder, folder of checkpoints, or one")
      ->required();
  CLI::App* verify = checkpoint->add_subcommand("verify", "compare every byte with its checksum");
  verify->add_option("folder", all.checkpoint.folder, "checkpoint; of a run folder the newest")
      ->required();
  for (CLI::App* command : {list, verify}) {
    command->add_flag("--json", all.checkpoint.json, kJsonHelp);
  }
  list->callback([&all] { all.code = RunCheckpointList(all.checkpoint); });
  verify->callback([&all] { all.code = RunCheckpointVerify(all.checkpoint); });
  checkpoint->footer(
      "Examples:\n"
      "  trireme checkpoint list runs/demo-20250101-120000\n"
      "  trireme checkpoint verify runs/demo-20250101-120000/checkpoints/step-00000600");
}

std::vector<std::string> NamesOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// An unknown word in the place of a subcommand, which CLI11 would only call an unexpected argument.
bool RefuseUnknown(const CLI::App& app, const std::string& word, const std::string& before) {
  const std::vector<std::string> names = NamesOf(app);
  if (word.empty() || word[0] == '-') return false;
  if (std::find(names.begin(), names.end(), word) != names.end()) return false;
  std::string message = "unknown command \"" + before + word + "\"";
  const std::string nearest = Nearest(word, names);
  if (!nearest.empty()) message += ", did you mean " + before + nearest + "?";
  message += " (trireme --help lists the commands)";
  PrintError(absl::InvalidArgumentError(message));
  return true;
}

// The words of the command line in the order of CLI11's vector (last first). "--prompt=" becomes
// two words, else CLI11 takes the next one as its value.
std::vector<std::string> WordsOf(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    const bool no_value = word.size() > 3 && word.rfind("--", 0) == 0 && word.back() == '=' &&
                          word.find('=') == word.size() - 1;
    if (no_value) word.pop_back();
    words.push_back(word);
    if (no_value) words.emplace_back();
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// Scripts believe the exit code: what could not be written has not been said. A run is over and
// saved by then, so there it is only told.
int CloseOutput(int code, bool is_run) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  // Without a cause it was an earlier write that failed.
  const int unwritten =
      PrintError(base::ErrnoStatus(errno == 0 ? EIO : errno, "the output could not be written"));
  return code == kOk && !is_run ? unwritten : code;
}

// Of a command that takes a job but not the ranks beside it, given `words[at]` as in -n 2, -n2 or
// --ranks=2: ", use --set resources.ranks=2"; else empty.
std::string InsteadOfRanks(const CLI::App& command, const std::vector<std::string>& words,
                           size_t at) {
  const bool takes_set = command.get_option_no_throw("--set") != nullptr;
  if (!takes_set || command.get_option_no_throw("--ranks") != nullptr) return "";
  const std::string& word = words[at];
  const auto names = [&](const std::string& name) { return word.rfind(name, 0) == 0; };
  if (!names("-n") && !names("--ranks")) return "";
  const auto is_number = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  };
  std::string ranks = word.substr(names("-n") ? 2 : 7);
  if (!ranks.empty() && ranks[0] == '=') ranks.erase(0, 1);
  if (!ranks.empty() && !is_number(ranks)) return "";
  if (ranks.empty() && at + 1 < words.size()) ranks = words[at + 1];
  return ", use --set resources.ranks=" + (is_number(ranks) ? ranks : "N");
}

// What is wrong, of the command that was being read: words that nobody knows before others that are
// missing, for who misspells an option may lack nothing else.
std::string FaultOf(const CLI::App& app, const CLI::App& command, const CLI::ParseError& error) {
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  for (size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string instead = InsteadOfRanks(command, words, at);
    if (!instead.empty()) return "unknown option " + word + instead;
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string nearest = Nearest(word, names);
    return "unknown option " + word + (nearest.empty() ? "" : ", did you mean " + nearest + "?");
  }
  const std::string said = error.what();
  return said == "A subcommand is required" ? "a command is missing" : said;
}

// What CLI11 found wrong; also --help and --version, which it prints.
int Refuse(const CLI::App& app, const CLI::ParseError& error, bool json) {
  if (error.get_exit_code() == 0) {
    app.exit(error);
    return CloseOutput(kOk, /*is_run=*/false);
  }
  std::string name = app.get_name();
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().back();
    name += " " + command->get_name();
  }
  const std::string fault = FaultOf(app, *command, error);
  if (json) return PrintError(absl::InvalidArgumentError(fault));
  std::fprintf(stderr, "%s: %s (%s --help lists %s)\n", name.c_str(), fault.c_str(), name.c_str(),
               command->get_subcommands({}).empty() ? "what it takes" : "the commands");
  return kBadInput;
}

// A damaged stream is bad input, not a failed job.
int CodeOfCodec(const absl::Status& end) {
  if (end.ok()) return kOk;
  const int code = PrintError(end);
  return absl::IsDataLoss(end) ? static_cast<int>(kBadInput) : code;
}

int Main(int argc, char** argv) {
  // Its errors reach people by the status of a call; beside them stderr is ours, unless somebody
  // wants to see what it does.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) client::HearGrpc(nullptr);
  CLI::App app(
      "Trireme trains deep networks across MPI ranks: data, tensor and pipeline parallelism.");
  app.name("trireme");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("trireme ") + TRIREME_VERSION, "print the version");
  Everything all;
  AddRun(app, all);
  AddPlan(app, all);
  AddSlurmScript(app, all);
  AddGenerate(app, all);
  AddBench(app, all);
  CLI::App* validate = app.add_subcommand("validate", "check a job file and its data");
  AddJob(*validate, all.validate.job, all.validate.overrides);
  validate->add_flag("--json", all.validate.json, kJsonHelp);
  validate->callback([&all] { all.code = RunValidate(all.validate); });
  AddCheckpoint(app, all);
  compress::AddCodecCommands(app, [&all](const absl::Status& end) { all.code = CodeOfCodec(end); });
  AddControlCommands(app, &all.code);
  CLI::App* version = app.add_subcommand("version", "print the version");
  version->add_flag("--json", all.version_json, kJsonHelp);
  version->callback([&all] { all.code = RunVersion(all.version_json); });
  AddManualCommands(app, &all.code);
  // Last, for subcommands inherit what is there when they are made.
  app.footer(
      "Begin with:\n"
      "  trireme run deploy/examples/demo.yaml -n 4      on this machine, at once\n"
      "  trireme submit deploy/examples/demo.yaml        by a coordinator (triremed)\n"
      "trireme COMMAND --help has the options and examples of each.\n\n" +
      ExitCodeText());

  if (argc > 1 && argv[1] == std::string(kCompleter)) {
    return RunComplete(app, {argv + 2, argv + argc});
  }

  // Before anything is parsed, so that what cannot be parsed is told in the same way.
  const bool json = std::find(argv, argv + argc, std::string("--json")) != argv + argc;
  if (json) PrintErrorsAsJson();
  if (argc > 1 && RefuseUnknown(app, argv[1], "")) return kBadInput;
  for (const std::string command : {"checkpoint", "codec"}) {
    if (argc > 2 && argv[1] == command &&
        RefuseUnknown(*app.get_subcommand(command), argv[2], command + " ")) {
      return kBadInput;
    }
  }
  try {
    app.parse(WordsOf(argc, argv));
  } catch (const CLI::ParseError& error) {
    return Refuse(app, error, json);
  }
  return CloseOutput(all.code, app.got_subcommand("run"));
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) { return trireme::cli::Main(argc, argv); }
