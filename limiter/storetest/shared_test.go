package storetest_test

import (
	"testing"

	"github.com/ration-go/ration/limiter/storetest"
)

// sharedFaults are stores on a shared database that break the promise in one way
// each, and the rules that say so.
var sharedFaults = []breach{
	{"a mutex in the process", []string{"R12 several stores, no lost debit",
		"R12 several stores, several budgets", "R9 several stores, corrections"}},
	{"locks in the order of the request", []string{"R12 several stores, several budgets"}},

	{"the start of the transaction is now", []string{"R2 the clock is read after the locks"}},
	{"each process has its own clock", []string{"R2 one clock for all"}},

	{"uses the caller's context up to the commit", []string{"R14 a caller that leaves",
		"R14 a caller that leaves breaks nothing"}},
	{"settles with the caller's context", []string{"R9 settle outlives its caller"}},

	{"writes receipts before the commit", []string{"R9 no receipt of a failed Take"}},
	{"keeps the receipt of the last Take", []string{"R9 no receipt of a failed Take"}},
	{"a failed transaction stays", []string{"R14 a Take that fails", "R9 a Settle that fails"}},
	{"takes a lost reply for a success", []string{"R14 a Take that fails"}},
	{"settles again after a lost reply", []string{"R9 a Settle that fails"}},
	{"consumes receipts before the commit", []string{"R9 a Settle that fails"}},
}

func TestRun_PassesARightStoreOnASharedDatabase(t *testing.T) {
	storetest.Run(t, sharedHarness(""))
}

func TestRules_CatchTheStoreThatSharesWrongly(t *testing.T) {
	catch(t, sharedHarness, sharedFaults)
}
