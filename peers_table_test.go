package goccl

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A scenario is something that users of another library of this kind ran into. Its number names its tests, in whatever package
// they are; gaps in the numbers are as they are.
type scenario struct {
	what  string // and where it was reported, as repository#number
	tests string // by name, those that are not called TestPeers and the number among them
	note  string // what of it goccl does not have, and why
}

// peers are the scenarios of correctness, numbers, start-up, failure, speed, misuse and hostile input.
var peers = map[int]scenario{
	1:  {"reduce writes into buffers of other ranks than the root (pytorch#21480, #76527)", "TestPeers01_ReduceLeavesOthersAlone", ""},
	2:  {"all-reduce over several buffers fills only the first (gloo#152)", "TestPeers02_BucketOfThree", "no call takes several buffers: several calls in flight do"},
	3:  {"unequal lengths pass or hang (nccl#1417, #1394)", "TestPeers03_UnequalLengths TestMismatchInEveryCollective", ""},
	5:  {"types of equal size are mixed up (ompi#199)", "TestPeers05_TypesOfEqualSize", ""},
	6:  {"no elements: crash (pytorch#85234, gloo#179, PR#495)", "TestPeers06_NothingInEveryOperation", ""},
	7:  {"gather where some hold nothing (pytorch#150928)", "TestPeers07_SomeHoldNothing", "the counts are given, not returned"},
	8:  {"fewer elements than ranks (ompi PR#8186)", "TestPeers08_FewerElementsThanRanks", ""},
	10: {"sizes overflow int (mpich#2317, ucc PR#944, ompi PR#9942)", "TestPeers10_SizeArithmetic", ".ci/run has it with GOARCH=386 too"},
	11: {"large all-to-all with random parts (gloo#334)", "TestPeers11_RandomAllToAllV", ""},
	12: {"split tables that disagree (pytorch#117486)", "TestPeers12_SplitsThatDisagree", ""},
	14: {"remainder and in-place layout of reduce-scatter (ucc PR#384, PR#345, ompi#218)", "TestPeers14_ReduceScatterOfTen", ""},
	15: {"tags ignored (pytorch#94819, torchcomms PR#2991)", "TestPeers15_TagsShuffled", ""},
	16: {"messages cross (pytorch#63486)", "TestPeers16_MessagesNeverCross", ""},
	18: {"world of one (Aluminum#89)", "TestPeers18_WorldOfOne TestAlone", ""},
	19: {"a cancelled call's completion is the next one's (ucc#1334, pytorch#32363)", "TestPeers19_CallAfterACancelledOne TestLateMessageIsNotLost",
		"no asynchronous call takes counts; a message belongs to sender and tag, so a late one goes to the next receive"},
	20: {"buffer written after the call (mlx#4276, PR#3933)", "TestPeers20_CancelledCallLetsGo", ""},

	22: {"16-bit sums rounded at every hop (nccl#1026, tt-metal#36749)", "TestPeers22_SixteenBitSumsRoundOnce", ""},
	23: {"average overflows f16 (horovod#1699, pytorch#78774)", "TestPeers23_MeanDoesNotOverflow", ""},
	24: {"mean by a rounded 1/n (torchcomms PR#4071)", "TestPeers24_MeanOfEqualsIsExact TestMeanOfEqual", ""},
	26: {"integer average (InfiniCCL PR#37, torchcomms PR#287)", "TestPeers26_IntegerMean", ""},
	27: {"wrong on one algorithm or size only (rocm-systems PR#10322, ucc#585)", "TestPeers27_ReductionsAgainstTheOracle", ""},
	28: {"other bits on each rank (ompi PR#12258)", "TestPeers28_SameBitsOnAllRanks TestRepeatedReductions", ""},
	30: {"kernels that disagree (nccl#434)", "TestPeers30_ReduceAll16 TestPeers30_ConvertAll16 TestPeers30_ConvertF32To16 TestPeers30_BlocksOfFloat32", ""},
	31: {"integers wrap (heat PR#1029)", "TestPeers31_IntegersWrap TestFoldNamedValues", "there is no unsigned 64-bit type"},

	32: {"loopback advertised to other hosts (ray#37461, Paddle#37951, aws-do-eks PR#69)", "TestPeers32_RouteIsAdvertised TestPeers32_LoopbackAmongHosts", ""},
	34: {"only lo, or twenty interfaces (oneCCL#157, #209)",
		"TestPeers34_NoNetwork TestPeers34_OnlyLoopback TestPeers34_ChoiceAmongTwenty TestPeers34_ChosenAndLoggedOnce", ""},
	35: {"IPv4 and IPv6 meet (gloo#399)", "TestPeers35_FamiliesMix TestPeers35_DualStack TestRezone", ""},
	37: {"coordinator comes late, or its port is taken (pytorch-operator#333, oneCCL#10)", "TestPeers37_WorkersFirst TestPeers37_PortInUse", ""},
	38: {"chosen port taken before use (vllm#39015, pytorch#126510, enroot#243)", "TestPeers38_FiftyGroupsAtOnce TestPeers38_AddressCanBeRead", ""},
	39: {"address in use: which? (pytorch#72816)", "TestPeers39_AddressInUseIsNamed", ""},
	41: {"a rank never starts (pytorch#52848, #8091, KungFu#247)", "TestPeers41_MissingRank TestPeers41_UnreachableRank TestMissingCoordinator", ""},
	42: {"sizes disagree (pytorch#136725)", "TestPeers42_SizesDisagree TestPeers42_BadSizesAndRanks TestRankAndSizeFromEnvironment", ""},
	43: {"leftovers of an earlier run (openpmix#4022, nccl#1936, ompi#6240)", "TestPeers43_ForeignRunRefused TestPeers43_EarlierStartRefused TestLinkRefusals",
		"ranks do not meet through files"},
	44: {"many ranks (gloo#327, horovod#3556, Megatron-LM#877)",
		"TestPeers44_SixtyFourRanks TestPeers44_HundredAndTwentyEightRanks TestPeers44_OutOfDescriptors TestPeers44_LowFileLimit", "times are logged, not held to a bound"},
	46: {"forms of addresses (pytorch#53395, dask-xgboost#5)", "TestPeers46_AddressForms TestPeers46_UnknownName TestConfigRefused TestEndpointForms", ""},

	47: {"one rank dies in an all-reduce (mlx#3862, PR#4060)", "TestPeers47_PendingCallsEndWithTheDead TestPeerDeathIsNamed TestKill", ""},
	49: {"black hole (horovod#3611, nccl#706, #193)",
		"TestPeers49_BlackHole TestPeers49_PauseBeforeTheBound TestLivenessStoppedRank TestLivenessResumedRank TestLivenessBlackHoles " +
			"TestStop TestStopBriefly TestBlackHole TestPacketsDropped", ""},
	50: {"who is it? (nccl#1324, pytorch#83289)", "TestPeers50_TheSleeperIsNamed TestPeers50_TheFirstCauseWins", ""},
	51: {"a rank aborts (pytorch#113281)", "TestPeers51_AbortWakesTheNeighbours TestAbortReachesEveryRank", ""},
	52: {"close and abort hang (nccl#863, pytorch#132696, PR#192105)", "TestPeers52_CloseWithWorkInFlight TestCloseEndsOwnCall TestAbortDuringMessages", ""},
	54: {"rank 0 leaves first (pytorch#123969, #69520, AReaL#1245, Paddle PR#44964)", "TestPeers54_StaggeredExits TestStaggeredExits TestStaggeredExitsInOneProcess", ""},
	56: {"cut-offs of a federated average (hivemind#676, #519, #351)", "", "there are no federated rounds yet"},
	57: {"time-outs that clash (torchtitan#2899, pytorch#14376)", "TestPeers57_TheEarliestLimitWins TestDefaultTimeout", ""},
	59: {"rare stalls (exo#2219, mlx#4475)", "TestPeers59_Soak TestSoak", "-soak says for how long"},

	60: {"too many bytes (gloo#169, PR#192)", "TestPeers60_BytesSent", ""},
	61: {"reduce-scatter as many all-reduces (pytorch PR#149869)", "TestPeers61_BytesOfReduceScatter", ""},
	63: {"cliffs between lengths (ompi PR#8186, #12550)", "", "a matter of measurement: bench sweeps lengths, no test holds them to a bound yet"},
	64: {"more sockets are slower (nccl#450, #438)", "", "two ranks have one connection for their collectives"},
	65: {"waiting burns a core (mlx#4475, oneCCL#209)", "TestPeers65_WaitingIsFree TestSleepersHoldNoThreads TestIdle", ""},
	67: {"latency and bandwidth (gloo#158, #248, ompi#9062)", "", "a matter of measurement: README has the table, bench the sweep"},

	68: {"different collectives meet (pytorch#22071, #78022, gloo PR#456)", "TestPeers68_DifferentCalls TestPeers68_DifferentAlgorithms TestMismatch", ""},
	69: {"only some ranks call (horovod#2564, #2640)", "TestPeers69_CallThatOneRankSkips TestStallWarning", ""},
	71: {"not supported, and nobody hears it (mlx#4285)", "TestPeers71_UnsupportedIsSaidAtOnce TestNothingSent", ""},
	72: {"checks break valid programs (pytorch#148976)", "TestPeers72_ChecksRaiseNoFalseAlarm", "checks cannot be off, so every test is one"},
	73: {"message to oneself (pytorch#83912, #106164, gloo#344)", "TestPeers73_SendToSelf", ""},
	75: {"calls on a dead group (pytorch PR#192105)", "TestPeers75_CallsAfterClose TestPeers75_CallsAfterAbort TestPeers75_CallsAfterAFailure", ""},

	76: {"strangers on the port (pytorch#106294, PR#107607)", "TestPeers76_Strangers TestPendingIsBounded TestSilentStrangerIsDropped TestHostile", ""},
	77: {"wrong magic first (nccl#1871)", "TestPeers77_StrangerFirst", ""},
	78: {"connect and hang up (ompi-release PR#364)", "TestPeers78_ConnectAndHangUp", ""},
	80: {"stray bytes crash a decoder (nccl#1996)", "TestPeers80_FramesOutOfPlace FuzzDecodeHeader FuzzAnswer FuzzMessage FuzzDecodeNotice FuzzDecodeEnvelope", ""},
	81: {"lengths are trusted (sources of Gloo, KungFu, PCCL)",
		"TestPeers81_AnnouncedMessages TestPeers81_MoreThanWasPosted TestPeers81_UnexpectedMessagesAreCapped TestPeers81_LengthsOfFrames TestLengthIsNotTrusted", ""},
	83: {"listens everywhere (pytorch#173909)", "TestPeers83_BindsExactly TestNameBeyondLoopbackNeedsInsecure", ""},
	84: {"one client poisons a federated mean (hivemind#93, PR#132)", "", "there are no federated rounds yet"},
	85: {"versions differ (NCCL's and Open MPI's magic)", "TestPeers85_VersionsDiffer TestHeaderRefusals", "protocol versions are compared, not those of the module; big-endian hosts do not build"},
}

// Every scenario has tests that exist, or a reason why it has none, and every test that is named after a number is listed there.
func TestPeersTable(t *testing.T) {
	exists := testNames(t)
	numbered := regexp.MustCompile(`^TestPeers(\d\d)_`)
	for _, n := range slices.Sorted(maps.Keys(peers)) {
		s, named := peers[n], false
		if s.tests == "" && s.note == "" {
			t.Errorf("scenario %d has neither tests nor a reason", n)
		}
		for name := range strings.FieldsSeq(s.tests) {
			if !exists[name] {
				t.Errorf("scenario %d: there is no %s", n, name)
			}
			if m := numbered.FindStringSubmatch(name); m != nil && m[1] == twoDigits(n) {
				named = true
			}
		}
		if s.tests != "" && !named {
			t.Errorf("scenario %d has no test with its number", n)
		}
	}
	for name := range exists {
		m := numbered.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		if n, _ := strconv.Atoi(m[1]); !slices.Contains(strings.Fields(peers[n].tests), name) {
			t.Errorf("%s is not listed under scenario %d", name, n)
		}
	}
}

func twoDigits(n int) string { return strconv.Itoa(100 + n)[1:] }

// testNames are the tests and fuzz targets of the whole module, for whatever system.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
