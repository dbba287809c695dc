# The question of whoever offers budgets: what to set, what each group gets, what accuracy is lost.
# sh examples/choosing_a_budget.sh

# Every certified way for 25,000 people within an epsilon of 2, the best first.
apes advise --budgets "0.1:60%,0.5:30%,1:10%" --users 25000 --rounds 30 \
  --target-epsilon 2 --delta 1e-6 --html advice.html
