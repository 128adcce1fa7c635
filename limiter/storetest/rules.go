package storetest

import "slices"

// Rules returns the rules in the order of their numbers.
func Rules() []Rule {
	return slices.Concat(arithmeticRules, clockRules, outcomeRules, requestRules, freeRules,
		settleRules, changeRules, windowRules, concurrencyRules, errorRules, keyRules)
}
